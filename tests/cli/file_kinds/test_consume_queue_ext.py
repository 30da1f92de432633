"""`dump` of consumequeue_ext on a disk that does not give a page of it."""

from __future__ import annotations

from pathlib import Path

from mqstore.formats.consume_queue_ext import UNIT
from tests.failing_disk import Bad, run

PAGE = 4096


def ext_file(folder: Path) -> Path:
    """A file of consumequeue_ext of three pages: units of 40 bytes, numbered by their tags."""
    path = folder / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    unit = {"msg_store_time": 1_795_211_087_163, "bit_map": bytes(20)}
    unit |= {"size": 40, "bit_map_size": 20}
    units = [UNIT.build({**unit, "tags_code": number}) for number in range(3 * PAGE // 40)]
    assert {len(each) for each in units} == {40}
    path.write_bytes(b"".join(units).ljust(3 * PAGE, b"\0"))
    return path


def test_ext_units_behind_it_are_read(tmp_path: Path) -> None:
    path = ext_file(tmp_path)
    dump = ["dump", str(path), "--format", "ndjson"]
    (whole,) = run([dump], [], tmp_path)
    (answer,) = run([dump], [Bad(path, PAGE, PAGE)], tmp_path)
    damage = [row for row in answer.rows if row["type"] == "damage"]
    assert [(row["position"], row["size"]) for row in damage] == [(PAGE, PAGE)]
    got = [row["tags_code"] for row in answer.rows if row["type"] != "damage"]
    assert got == [n for n in range(len(whole.rows)) if n * 40 + 40 <= PAGE or n * 40 >= 2 * PAGE]
    assert answer.code == 5 and f"{path} at {PAGE}" in answer.err
