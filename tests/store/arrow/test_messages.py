"""Messages read as rows and written again are the same: every field, body, property, order, queue offset.

What a store assigns again (addresses, ids, checksums and sizes of bodies that are compressed again)
is held by `verify`, and by `tests/interop/test_round_trip.py`.
"""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.formats.hashing import crc31
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.arrow.export_formats import ExportFormat, open_sink
from mqstore.store.put.message_json import record_of

from ...cli.datadriven import run_here
from ...stores import ALL, OF_TODAY, truth, unpack
from .rows import Row, given, table_of

FORMATS = ("parquet", "arrow", "json", "csv", "avro")


def write(table: pa.Table, form: str, path: Path) -> None:
    sink = open_sink(ExportFormat(form), path, table.schema)
    for begin in range(0, table.num_rows, 100):
        sink.write(table.slice(begin, 100))
    sink.close()


def there_and_back(name: str, form: str, tmp_path: Path, body: str = "plain") -> tuple[pa.Table, pa.Table]:
    """The rows of a store, and of what `put --from` makes of their file."""
    root = unpack(name, tmp_path)
    wanted = table_of(root, body=body)
    file, new = tmp_path / f"rows.{form}", tmp_path / "new"
    write(wanted, form, file)
    words = ["put", str(new), "--from", str(file), "--keep-times", "--no-answers"]
    words += ["--as-broker", truth(name)["broker_version"], "--on-damage", "mark"]
    result = run_here(words)
    assert result.code in (0, 1), result.stderr
    return wanted, table_of(new, body=body)


def queue_offsets(table: pa.Table) -> dict[tuple[str, int], list[int]]:
    """Of each queue, as far as its messages take one."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in table.to_pylist():
        if not row["sys_flag"] & SysFlag.PREPARED:
            found[row["topic"], row["queue_id"]].append(row["queue_offset"])
    return found


def same_again(name: str, form: str, tmp_path: Path) -> None:
    wanted, found = there_and_back(name, form, tmp_path)
    assert given(found) == given(wanted), f"{name} as {form}"
    for queue, offsets in (old := queue_offsets(wanted)).items():
        if offsets == list(range(offsets[0], offsets[0] + len(offsets))):  # nothing is missing
            again = [offset + offsets[0] for offset in queue_offsets(found)[queue]]
            assert again == offsets, f"{name} as {form}: {queue}"
    assert queue_offsets(found).keys() == old.keys()


@pytest.mark.few(6)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-killed-bit", "5.3.3-v2"])
def test_the_same_again(name: str, form: str, tmp_path: Path) -> None:
    same_again(name, form, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ALL, *OF_TODAY])
def test_the_same_again_of_every_store(name: str, tmp_path: Path) -> None:
    for form in FORMATS:
        (folder := tmp_path / form).mkdir()
        same_again(name, form, folder)


@pytest.mark.parametrize("form", FORMATS)
def test_bodies_as_stored(form: str, tmp_path: Path) -> None:
    """Marked by `raw`: byte for byte, compressed or not, sound or not."""
    wanted, found = there_and_back("5.3.3-killed-bit", form, tmp_path, body="stored")
    assert given(found) == given(wanted)
    assert found.column("body_crc") == wanted.column("body_crc")


@pytest.mark.parametrize("form", FORMATS)
def test_properties_as_they_are_stored(form: str, tmp_path: Path) -> None:
    """Bytes that are no text, and a name that stands twice, beside messages that have neither."""
    texts = [b"KEYS\1\xff\xfe\2TAGS\1\xc3(\2", b"UNIQ_KEY\1k\2a\1b\2", b"UNIQ_KEY\1k\2a\1b\2a\1c\2"]
    lines = [row(properties_raw_base64=base64.b64encode(text).decode()) for text in texts]
    given_, old, file, new = (tmp_path / name for name in ("in.ndjson", "old", f"rows.{form}", "new"))
    given_.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run_here(["put", str(old), "--from", str(given_), "--no-answers"]).code == 0
    wanted = table_of(old, body="plain")
    assert wanted.column("properties_raw").to_pylist() == [texts[0], None, texts[2]]
    write(wanted, form, file)
    assert run_here(["put", str(new), "--from", str(file), "--no-answers", "--keep-times"]).code == 0
    assert given(table_of(new, body="plain")) == given(wanted)


def row(**fields: Any) -> Row:
    return {"topic": "T", "body": "hello" * 20, **fields}


WRONG: list[tuple[Row, str]] = [
    (row(sys_flag=1), "line 2: body: sys_flag 1 says it is compressed, but it does not decompress"),
    (row(sys_flag=0x201), "line 2: body: sys_flag 513 says .* does not decompress with zstd"),
    (row(sys_flag=0, body_compression="zlib"), "body_compression says zlib, sys_flag 0 not comp"),
    (row(sys_flag=0x101, body_compression="zlib"), "says zlib, sys_flag 257 lz4"),
    (row(sys_flag=0x401, body_compression="zlib"), "says zlib, sys_flag 1025 a type that clients do not know"),
    (row(sys_flag=0x401), "sys_flag 1025 says it is compressed, but it has the compression type 4"),
    (row(body_compression="gzip"), "line 2: body_compression: not one of zlib, lz4, zstd: 'gzip'"),
]


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
@pytest.mark.parametrize(("wrong", "said"), WRONG)
def test_what_does_not_fit_is_refused(wrong: Row, said: str, form: str, tmp_path: Path) -> None:
    """And what stands before it is stored."""
    first, file, new = row(), tmp_path / f"in.{form}", tmp_path / "new"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist([{**dict.fromkeys(wrong), **first}, wrong]), file)
    else:
        file.write_text("".join(json.dumps(one) + "\n" for one in (first, wrong)))
    result = run_here(["put", str(new), "--from", str(file)])
    assert result.code == 2 and re.search(said, result.stderr), result.stderr
    assert table_of(new).num_rows == 1


@pytest.mark.parametrize("codec", ["zlib", "lz4", "zstd"])
def test_a_codec_alone_says_how_to_compress(codec: str, tmp_path: Path) -> None:
    file, new = tmp_path / "in.parquet", tmp_path / "new"
    pq.write_table(pa.Table.from_pylist([row(body_compression=codec)]), file)
    assert run_here(["put", str(new), "--from", str(file)]).code == 0
    found = table_of(new, body="plain").to_pylist()
    assert [(one["body"], one["body_compression"]) for one in found] == [(b"hello" * 20, codec)]


@pytest.mark.parametrize("form", ["ndjson", "parquet"])
@pytest.mark.parametrize(("on_damage", "kept"), [("fail", [0]), ("skip", [0, 2]), ("mark", [0, 1, 2])])
def test_corrupted_bodies(on_damage: str, kept: list[int], form: str, tmp_path: Path) -> None:
    """Told, counted, exit code 1; never stored as sound ones."""
    file, new = tmp_path / f"in.{form}", tmp_path / "new"
    crc = crc31(b"hello" * 20)
    given = [row(flag=n, body_crc_ok=n != 1, body_crc=crc + (n == 1), store_timestamp=n) for n in range(3)]
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(given), file)
    else:
        file.write_text("".join(json.dumps(one) + "\n" for one in given))
    result = run_here(["put", str(new), "--from", str(file), "--on-damage", on_damage])
    assert result.code == 1
    told = {"fail": "line 2: the body failed its checksum", "skip": "1 message left out"}
    assert told.get(on_damage, "its copy fails, too") in result.stderr
    found = table_of(new, fields="topic,flag,body_crc,body_crc_ok").to_pylist()
    assert [(one["flag"], one["body_crc_ok"]) for one in found] == [(n, n != 1) for n in kept]
    assert on_damage != "mark" or found[1]["body_crc"] == crc + 1


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=8))])
def test_times_of_single_rows_lose_what_is_finer_than_a_millisecond(zone: timezone | None) -> None:
    """As Avro's timestamp-micros gives them; a time without a zone is in UTC, wherever the command runs."""
    for millisecond in (0, 1, 57, 999):
        found = datetime(2026, 11, 20, 1, 2, 3, millisecond * 1000 + 999, zone)
        wanted = int(datetime(2026, 11, 20, 1, 2, 3, 0, zone or UTC).timestamp()) * 1000 + millisecond
        assert record_of({"born_timestamp": found}, 1) == {"born_timestamp": wanted}
