"""One file of `config/`: the entries of its tables, or what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chunks import Chunk, Piece, Range, Texts
from .one_file import read_head

if TYPE_CHECKING:
    from ...store.config_file import ConfigFile
    from ...store.recognise import Recognised
    from ..options import Common


def chunks(what: Recognised, at: int | None, raw: bool, common: Common) -> Iterator[Chunk]:
    """The entries, from number `at` on; then the range that cannot be read."""
    yield from file_chunks(what.path, what.kind, at or 0, common)


def file_chunks(path: Path, kind: str, at: int, common: Common) -> Iterator[Chunk]:
    """The same for a file of a directory."""
    from itertools import islice

    from ...store.config_file import LARGEST_BYTES, read_config_file

    file = read_config_file(path, kind)
    if file.note:
        common.warn(f"{path}: {file.note}")
    yield Texts(
        islice(file.records(), at, None),
        lambda: iter((Piece(path.name, 0, read_head(path, LARGEST_BYTES), None),)),
    )
    if file.problem is not None:
        position, size, reason = file.problem
        common.warn(f"{path}: {said_of(file)}")
        yield Range(
            {"type": "damage", "position": position, "size": max(size, 1), "reason": reason}
        )


def said_of(file: ConfigFile) -> str:
    """One line: how many entries of what, or what is wrong and what a broker does then."""
    from ...store.config_file import BACKUP, stand_in

    counts = Counter(r["type"].replace("_", " ") for r in file.records())
    counts.pop("data version", None)
    counts.pop("config value", None)
    told = ", ".join(
        f"{n} {name if n == 1 else f'{name}s'.replace('ys', 'ies')}" for name, n in counts.items()
    )
    if file.problem is None:
        return (told or "no entries") + (f"; {file.note}" if file.note else "")
    what = f"broken at byte {file.problem.position} ({file.problem.reason})"
    rest = [f"{told} before that"] if told else []
    if not file.path.name.endswith(BACKUP):
        rest.append(stand_in(file, file.path, file.kind))
    return "; ".join((what, *rest))


def summary(what: Recognised, common: Common) -> dict[str, Any]:
    """What is in it, and whether a broker takes it."""
    from ...store.config_file import read_config_file

    file = read_config_file(what.path, what.kind)
    return {
        "state": "whole" if file.problem is None else "broken",
        "contents": [said_of(file)],
    }
