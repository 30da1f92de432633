"""`mqstore export`: columns, bodies that fail their checksum, stores that are not all there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.cli.app import run
from mqstore.cli.record_types import schema_of

from ..stores import unpack
from .json_schema import errors
from .small_store import small_store


def test_a_body_stands_with_what_tells_how_to_take_it(tmp_path: Path) -> None:
    """Whichever columns are asked for."""
    root = unpack("5.3.3-v2", tmp_path)
    words = ["export", str(root), "--to", str(tmp_path / "out"), "--columns", "topic,body", "-q"]
    assert run([*words, "--output", str(tmp_path / "answer")]) == 0
    notes = ["body_crc_ok", "body_compression", "body_error"]
    assert pq.read_table(tmp_path / "out").column_names == ["topic", "body", *notes]


@pytest.mark.parametrize(
    ("on_damage", "code", "said"),
    [
        ("fail", 1, "the body failed its checksum; --on-damage skip leaves it out"),
        ("skip", 1, "1 message left out: its body failed its checksum"),
        ("mark", 1, "1 message has a body that failed its checksum"),
    ],
)
def test_a_corrupted_body_is_never_a_sound_one(
    on_damage: str, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, position, out = one_flipped(tmp_path), "position", tmp_path / "out"
    words = ["export", str(root), "--to", str(out), "--on-damage", on_damage, "--json"]
    assert run(words) == code
    printed, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1
    if on_damage == "fail":
        assert not printed and not out.exists()
        return
    found = pq.read_table(out).sort_by(position)
    wrong = found.filter(pa.compute.invert(found.column("body_crc_ok")))
    assert wrong.num_rows == (on_damage == "mark")
    report = json.loads(printed)
    assert (report["skipped"], report["marked"]) == (1 - wrong.num_rows, wrong.num_rows)
    assert report["status"] == ("complete" if on_damage == "mark" else "incomplete")


def one_flipped(folder: Path) -> Path:
    """A store of which one body has a flipped bit, and the CRC that it had."""
    given = [{"topic": "t", "body": f"hello {n}" * 9, "store_timestamp": n} for n in range(9)]
    root = small_store(folder / "store", *given)
    (log,) = (root / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[data.index(b"hello 5")] ^= 1
    log.write_bytes(data)
    return root


def test_no_message_at_all_is_a_file_with_columns(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    words = ["export", str(root), "--to", str(tmp_path / "out"), "-t", "none", "-q"]
    assert run([*words, "--output", str(tmp_path / "answer")]) == 0
    found = pq.read_table(tmp_path / "out")
    assert found.num_rows == 0 and found.schema.field("topic").type == pa.string()


def test_a_path_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = unpack("5.3.3-lmq", tmp_path).rename(tmp_path / os.fsdecode(b"odd\xff"))
    out = tmp_path / "out"
    assert run(["export", str(root), "--to", str(out), "--columns", "store", "-q"]) == 0
    assert pq.read_table(out).column("store").unique().to_pylist() == [f"{tmp_path}/odd\ufffd"]
    capsys.readouterr()
    assert run(["diff", str(root), str(root)]) == 0


def test_a_part_of_the_stores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer says that it is one."""
    root = unpack("5.3.3-v2", tmp_path)
    words = ["export", str(root), str(tmp_path / "none"), "--to", str(tmp_path / "new")]
    assert run([*words, "--partial", "--json"]) == 1
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert list(errors(schema_of("export"), report)) == []
    assert report["status"] == "incomplete"
    assert [one["store"] for one in report["unread"]] == [str(tmp_path / "none")]
    assert err.startswith("mqstore: no such directory")
    assert pq.read_table(tmp_path / "new").num_rows == report["rows"] > 0
