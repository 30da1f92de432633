"""A directory that a command makes: it is there whole behind it, or what was there before stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreError
from .files import Files


@contextmanager
def new_directory(target: Path, files: Files) -> Iterator[None]:
    """Make `target`, new or empty, and let `files` write nowhere else in this block: what has come of
    it is removed again where the block is left by an error or an interrupt.

    The error says so, or names what could not be removed. Raises NoSpace, Unreadable, Missing.
    """
    made = [path for path in (target, *target.parents) if not path.exists()]
    try:
        files.make_directory(target)
        files.confine([target])
        yield
    except BaseException as error:
        told = f"nothing is left of {target}"
        try:
            _clear(target, made, files)
        except StoreError as kept:
            told = f"{target} is not whole, and stays: {kept}"
        if isinstance(error, StoreError):
            error.hint = "; ".join(filter(None, (error.hint, told)))
        else:
            error.add_note(told)
        raise


def remove_tree(folder: Path, files: Files) -> None:
    """Remove a folder with all that is in it; links in it are not followed."""
    _empty(folder, files)
    files.remove_directory(folder)


def _empty(folder: Path, files: Files) -> None:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            remove_tree(path, files)
        else:
            files.unlink(path)


def _clear(target: Path, made: list[Path], files: Files) -> None:
    """Remove what is in a directory, then the directories that were made."""
    if target.is_dir():
        _empty(target, files)
    outside = Files()  # the other one is confined to the target
    for path in made:
        if path.is_dir():
            outside.remove_directory(path)
