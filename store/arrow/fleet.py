"""Which stores are meant: directories, patterns, lists in files, places in object storage."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from glob import glob, has_magic
from pathlib import Path
from urllib.parse import quote

from ..disk.layout import is_uri
from ..errors import InvalidInput, Missing, from_os_error

LIST = "@"
"""A word that begins so names a file with a store on each line."""
_COMMENT = "#"
_LIST_BYTES_MAX = 64 << 20


def as_path(store: str) -> Path:
    """An absolute path that stands for a store: where it lies, or what its URI says."""
    return Path(_absolute("/" + store.replace("://", "/")) if is_uri(store) else store)


def stores_of(words: Iterable[str]) -> list[str]:
    """The stores that some words mean, in their order, each once; local ones as absolute paths.

    A word is a directory, a pattern as a shell's (`/data/*/store`), a URI, or `@FILE`: a word a
    line, where a line that is empty or begins with `#` means nothing. A directory need not be
    there: what is wrong with one is told where it is read. Raises Missing for a pattern that fits
    nothing and for a list that is not there, Unreadable, InvalidInput for no store at all.
    """
    found = list(dict.fromkeys(store for word in words for store in _expanded(word)))
    if not found:
        raise InvalidInput("no store is named")
    return found


def names_of(roots: Sequence[Path]) -> list[str]:
    """A name for each of several stores: its path below what the paths have in common.

    >>> names_of([Path("/d/a/store"), Path("/d/b/store")])
    ['a/store', 'b/store']
    """
    if len(roots) < 2:
        return ["" for _ in roots]
    common = os.path.commonpath([root.parent for root in roots])
    return [root.relative_to(common).as_posix() for root in roots]


def folders_of(roots: Sequence[Path]) -> list[str]:
    """A folder for each of several stores, none inside another one: their names.

    Where a store lies in another one, all get folders side by side. Raises InvalidInput for a store
    named twice.

    >>> folders_of([Path("/d/a"), Path("/d/a/b"), Path("/d/c")])
    ['a', 'a%2Fb', 'c']
    """
    known = set(roots)
    if len(known) < len(roots):
        raise InvalidInput("a store is named twice")
    names = names_of(roots)
    if any(not known.isdisjoint(root.parents) for root in roots):
        return [quote(os.fsencode("/" if name == "." else name), safe="") for name in names]
    return names


def _expanded(word: str) -> Iterator[str]:
    if word.startswith(LIST):
        for line in _lines(Path(word[len(LIST) :])):
            yield from _expanded(line)
    elif is_uri(word):
        yield word.rstrip("/")
    elif has_magic(word) and not Path(word).exists():
        directories = [path for path in _matches(word) if Path(path).is_dir()]
        if not directories:
            raise Missing("no directory has such a name", path=word)
        yield from map(_absolute, directories)
    elif word:
        yield _absolute(word)


def _matches(pattern: str) -> list[str]:
    return sorted(glob(pattern))  # noqa: PTH207 - Path.glob takes no absolute pattern


def _absolute(path: str) -> str:
    # not resolve(): it fails at a loop of links, which Layout tells better
    return os.path.abspath(path)  # noqa: PTH100


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(_LIST_BYTES_MAX + 1)
    except OSError as error:
        raise from_os_error(error, path) from error
    if len(data) > _LIST_BYTES_MAX:
        raise InvalidInput(f"a list of stores of more than {_LIST_BYTES_MAX} bytes", path=path)
    lines = [line.strip() for line in os.fsdecode(data).splitlines()]
    wanted = [line for line in lines if line and not line.startswith(_COMMENT)]
    if any(line.startswith(LIST) for line in wanted):
        raise InvalidInput("a list of stores names another list", path=path)
    return wanted
