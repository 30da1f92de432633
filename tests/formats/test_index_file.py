"""Sizes and places of an index file."""

from __future__ import annotations

from mqstore.formats import index_file


def test_size_of_an_index_file() -> None:
    assert index_file.file_size(10, 20) == 480
    assert index_file.items_offset(10) == 80
    assert index_file.slots_offset() == 40
    assert index_file.items_of(479, 10) == 19
    assert index_file.items_of(3, 10) == 0
