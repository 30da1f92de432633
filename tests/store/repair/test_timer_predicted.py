"""Edits of the timer's files, put together: as if one came behind the other, and quickly."""

from __future__ import annotations

from typing import Any

import pytest

from mqstore.store.disk.files import Edit
from mqstore.store.repair.timer import joined


def write(path: str, offset: int, data: bytes | None, length: int = 0) -> Edit:
    return Edit("write", path, "r", (), offset, length or len(data or b""), data)


def test_the_newest_file_gets_what_is_written() -> None:
    old = Edit("create", "a", "old", length=9, pieces=((0, b"x"),))
    new = Edit("create", "a", "new", length=9)
    before = [old, write("b", 0, b"1")]
    more = [write("a", 1, b"2"), write("b", 3, b"3"), new, write("a", 4, None, 2), write("b", 5, b"4")]
    wanted = [
        old._replace(pieces=((0, b"x"), (1, b"2"))),
        write("b", 0, b"1"),
        write("b", 3, b"3"),
        new._replace(pieces=((4, b"\0\0"),)),
        write("b", 5, b"4"),
    ]
    assert joined(before, more) == wanted
    assert before == [old, write("b", 0, b"1")]


def test_many_pieces_are_put_in_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of pieces that is copied for each of them takes for ever."""
    calls, whole = [], Edit._replace

    def counted(edit: Edit, **fields: Any) -> Edit:
        calls.append(edit)
        return whole(edit, **fields)

    monkeypatch.setattr(Edit, "_replace", counted)
    (found,) = joined([Edit("create", "a", "r")], [write("a", n, b"x") for n in range(100)])
    assert [at for at, _ in found.pieces] == list(range(100))
    assert len(calls) == 1
