"""One file as a stream of its own: where it begins, and what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.cli.file_kinds.one_file import lacking, single_file, unreadable
from mqstore.store.disk.byte_reader import noting

from ...failing_disk import fail_here
from ...packing import gz


@pytest.mark.parametrize(
    ("name", "start"), [(f"{4096:020}", 4096), (f"{4096:020}.gz", 4096), ("copy.bin", 0), ("-5", 0)]
)
def test_the_name_of_a_file_tells_where_it_begins(name: str, start: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gz(bytes(100)) if name.endswith(".gz") else bytes(100))
    with single_file(path) as files:
        assert [(file.start, file.end) for file in files.files] == [(start, start + 100)]
        assert not [*lacking(files)]


def test_the_end_of_a_compressed_file_that_is_cut_is_damage(tmp_path: Path) -> None:
    path = tmp_path / f"{4096:020}.gz"
    packed = gz(bytes(range(256)) * 100)
    path.write_bytes(packed[: len(packed) - 20])
    with single_file(path) as files:
        (found,) = lacking(files)
        (silent,) = lacking(files, silent=True)
        whole = files.files[0].size
    assert found.record["type"] == "damage"
    assert 4096 <= found.record["position"] <= 4096 + whole
    assert found.record["reason"].startswith(f"{path.name} does not decompress: it is cut off")
    assert silent.silent and not [*silent.records()]


def test_what_a_disk_does_not_give_is_damage_where_the_stream_has_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 8192)
    fail_here(path, 4096, 512)
    with noting(), single_file(path) as files:
        assert not [*lacking(files)]
        files.read_around(files.files[0], 0, memoryview(bytearray(8192)))
        (found,) = (part.record for part in lacking(files))
        assert [part.record for part in unreadable(str(path), 100)] == [{**found, "position": 4196}]
    assert (found["position"], found["reason"]) == (4096, "unreadable: Input/output error")
    assert not [*unreadable(str(path))], "nobody notes any more"
