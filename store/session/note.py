"""Short notes in a store's directories, whose disk may have not one byte free.

A note is the content of a file. Where there is no room for that it stands in the file's name, which
takes no block of its own.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ..disk.byte_reader import read_at
from ..disk.files import Files
from ..errors import NoSpace

_NOTE_BYTES = 4096
_NAME_BYTES = 255
"""Longest name of a file."""
_MARK = "="


def write_note(files: Files, path: Path, text: bytes, length: int | None = None) -> None:
    """Create the file at `path` that says `text`, and flush it and its name.

    length: of the file, zeros behind the text; None: no more than the text. Where there is no room,
    its name goes on with the text. Raises NoSpace, Unreadable: then there is no such file.
    """
    try:
        _create(files, path, text, length)
    except NoSpace:
        name = f"{path.name}{_MARK}{quote_from_bytes(text, safe='')}"
        if not text or len(name) > _NAME_BYTES:
            raise
        _create(files, path.with_name(name), b"", length)


def _create(files: Files, path: Path, text: bytes, length: int | None) -> None:
    try:
        with files.create(path) as file:
            if text:
                file.pwrite(text, 0)
            if length is not None:
                file.truncate(length)
            file.sync()
        files.sync_directory(path.parent)
    except BaseException:
        if path.exists():
            files.unlink(path)
            files.sync_directory(path.parent)
        raise


def find_note(path: Path) -> Path | None:
    """The file that `write_note` made for `path`, None where there is none."""
    if path.exists():
        return path
    named = f"{path.name}{_MARK}"
    others = path.parent.iterdir() if path.parent.is_dir() else ()
    return next((other for other in others if other.name.startswith(named)), None)


def read_note(path: Path) -> bytes:
    """What a note says, b"" if nothing. path: as `find_note` gives it. Raises Missing, Unreadable."""
    text = read_at(path, _NOTE_BYTES, 0).partition(b"\0")[0]
    return text or unquote_to_bytes(path.name.partition(_MARK)[2])
