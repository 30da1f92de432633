"""What pages about a plan share: folded lists, the steps of a plan, and what came of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ..store.counted import counted, listed

if TYPE_CHECKING:
    from ..store.disk.files import Edit
    from ..store.disk.layout import Layout
    from ..store.session.apply import Applied
    from ..store.session.journal import Step
    from ..store.start.config import ConfigStart

ROWS = 12
"""Lines of a list that are shown; the others are only counted."""
_NAMED = 3
"""Files of a step that are named; the others are only counted."""
_COUNTED = re.compile(r"(\d+) (unit|tick|offset|position|byte)s?\b", re.ASCII)
"""The beginning of a reason with a number, which is summed for all files with the same reason."""
T = TypeVar("T")


class CarriedOut(NamedTuple, Generic[T]):
    """A plan that was carried out. after: the store as it was judged then. left: configuration that is still lost."""

    applied: Applied
    after: T
    left: ConfigStart | None


def section(title: str, lines: Iterable[str], rows: int | None) -> list[str]:
    """An empty line, the title and the folded lines; nothing if there are no lines."""
    shown = folded(lines, rows)
    return ["", title, *shown] if shown else []


def folded(items: Iterable[T], rows: int | None, text: Callable[[T], str] = str) -> list[str]:
    """A line for each of the first `rows` items, and how many more there are; with None for all."""
    shown, more = first_ones([*items], rows)
    return [*map(text, shown), *more]


def first_ones(items: Sequence[T], rows: int | None) -> tuple[Sequence[T], list[str]]:
    """The first `rows` items, and a line with how many more there are; with None all. One more alone is not hidden."""
    if rows is None or len(items) <= rows + 1:
        return items, []
    return items[:rows], [f"  … {len(items) - rows} more (--verbose shows all)"]


def steps_text(edits: Iterable[Edit | Step], layout: Layout, one_by_one: bool) -> Iterator[str]:
    """A line for each edit, or for all edits of a kind whose reasons differ only in a number; a second line names files
    if there are several. one_by_one: do not join edits.
    """
    files: dict[tuple[str, str, str], dict[str, None]] = {}
    counts: Counter[tuple[str, str, str]] = Counter()
    for edit in edits:
        if one_by_one:
            yield f"  {edit.kind:<8} {edit.path.removeprefix(f'{layout.root}/')}: {edit.reason}"
            continue
        number = _COUNTED.match(edit.reason)
        rest = edit.reason[number.end() :] if number else edit.reason
        key: tuple[str, str, str] = (edit.kind, number[2] if number else "", rest)
        files.setdefault(key, {})[edit.path.removeprefix(f"{layout.root}/")] = None
        counts[key] += int(number[1]) if number else 0
    for key, paths in files.items():
        kind, thing, rest = key
        reason = f"{counted(counts[key], thing, form=',')}{rest}" if thing else rest
        names = listed([*paths], _NAMED)
        if len(paths) == 1:
            yield f"  {kind:<8} {names}: {reason}"
            continue
        yield f"  {kind:<8} {len(paths)} files: {reason}"
        yield f"             {names}"
