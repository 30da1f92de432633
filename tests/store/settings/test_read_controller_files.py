"""epochFileCheckpoint and brokerIdentity. What the real classes take: tests/interop/test_ha_files.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.hashing import crc31
from mqstore.store.inspect.recognise import recognise
from mqstore.store.settings import read as config_files
from mqstore.store.settings.read import read_config_file, summary_of

#: The example of the specification (spec 06, 6.2), written by the real class.
EPOCHS = b"2\n773307083\n7-7000\n8-8000\n"


def read(path: Path, kind: str, data: bytes) -> tuple[list[dict[str, Any]], str]:
    """Records without type and file, and what `inspect` says."""
    path.write_bytes(data)
    found = read_config_file(path, kind)
    records = [{n: v for n, v in r.items() if n not in ("type", "file")} for r in found.records()]
    return records, summary_of(found).text


def test_epochs(tmp_path: Path) -> None:
    path = tmp_path / "epochFileCheckpoint"
    records, said = read(path, "epoch-file", EPOCHS)
    assert records == [
        {"table": "header", "count": 2, "crc": 773307083, "crc_ok": True},
        {"table": "epochs", "epoch": 7, "start_offset": 7000},
        {"table": "epochs", "epoch": 8, "start_offset": 8000},
    ]
    assert said == "1 epoch file, 2 epochs"


@pytest.mark.parametrize(
    ("data", "says", "read_so_far"),
    [
        (b"", "broken at byte 0 (empty); 1 epoch file before that; a broker does not", 0),
        (b"2\n", "broken at byte 0 (it ends in its header)", 0),
        (b"2\nx\n7-7\n", "broken at byte 2 (the crc is not a number)", 0),
        (EPOCHS.replace(b"7-", b"9-"), "its CRC is 773307083, but its lines have", 2),
        (EPOCHS.replace(b"2", b"3", 1), "2 entries, not 3 as its header says", 2),
        (b"1\n0\n7-7\n8\n9-x", "broken at byte 10 (the start offset is not a number)", 1),
        (b"2\n0\n7-7\n8\n", "broken at byte 8 (1 entry, not 2", 1),
        (b"2\n0\n7-7\n6-8\n", "epoch 6 follows epoch 7", 2),
        (b"2\n0\n7-7\n8-6\n", "epoch 8 begins before the epoch above it", 2),
        (b"1\n0\n\xff-7\n", "not UTF-8", 0),
    ],
)
def test_damaged_epochs(data: bytes, says: str, read_so_far: int, tmp_path: Path) -> None:
    """What is wrong, where, and what can be read all the same."""
    records, said = read(tmp_path / "epochFileCheckpoint", "epoch-file", data)
    assert says in said
    assert sum("epoch" in record for record in records) == read_so_far


def test_the_bak_of_epochs(tmp_path: Path) -> None:
    """A broker reads it where the CRC is wrong, not where a number is none."""
    (tmp_path / "epochFileCheckpoint.bak").write_bytes(EPOCHS)
    path = tmp_path / "epochFileCheckpoint"
    assert "a broker reads epochFileCheckpoint.bak" in read(path, "epoch-file", EPOCHS.replace(b"7-", b"9-"))[1]
    assert "does not read its .bak" in read(path, "epoch-file", b"1\n0\n7-x\n")[1]
    assert recognise(tmp_path / "epochFileCheckpoint.bak").kind == "epoch-file"


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), max_size=20))
def test_any_epochs(rows: list[tuple[int, int]]) -> None:
    lines = b"".join(b"%d-%d\n" % row for row in rows)
    found = config_files.parse_epochs(b"%d\n%d\n" % (len(rows), crc31(lines)) + lines)
    assert found.problem == ""
    assert found.value["epochs"] == {str(epoch): offset for epoch, offset in rows}


@given(st.binary(max_size=60) | st.text("0123456789-+#\r\n x", max_size=60).map(str.encode))
def test_any_bytes(data: bytes) -> None:
    """Nothing is raised; the place of a problem is in the text."""
    for parse in (config_files.parse_epochs, config_files.parse_identity):
        found = parse(data)
        assert 0 <= found.position <= len(data)


@pytest.mark.parametrize(
    ("data", "wanted", "says"),
    [
        ("集群#broker-a#3", {"cluster_name": "集群", "broker_name": "broker-a", "broker_id": 3}, ""),
        ("c#b#3#code", {"register_check_code": "code", "broker_id": 3}, ""),
        ("c#b", {"broker_name": "b"}, "2 parts, not the 3 of an identity"),
        ("c##3", {"cluster_name": "c"}, "broken at byte 2 (the broker name is empty)"),
        ("集#b#3\n", {"broker_name": "b"}, "broken at byte 6 (the broker id is not a number)"),
        ("", {}, "empty"),
    ],
)
def test_identity(data: str, wanted: dict[str, Any], says: str, tmp_path: Path) -> None:
    records, said = read(tmp_path / "brokerIdentity", "broker-identity", data.encode())
    assert wanted.items() <= records[0].items()
    assert says in said
    assert not says or "no broker reads its .bak" in said
    for name in ("brokerIdentity", "brokerIdentity-temp", "brokerIdentity.bak"):
        (tmp_path / name).write_bytes(data.encode())
        assert recognise(tmp_path / name).kind == "broker-identity"
