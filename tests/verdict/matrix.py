"""The table of verdicts: docs/verdicts.md, written by `python -m tests.verdict`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
_HEAD = """# Verdicts

What mqstore says of damaged stores, and what is true. *Real start*: what the real classes made of the
store, where that is on record: `fine` (a start loses and hides nothing), `harm` (it loses or hides
messages, or there is none).
*Before*: the verdict of `verify`, `recover`, `repair`. *After*: the same behind `recover --apply`;
codes are those that stay, each of them with its reason (`mqstore explain CODE`).

Written by `python -m tests.verdict page`. Numbers are the stores of its runs.

| Stores | Made | Real start | Before | After |
|---|---|---|---|---|
"""


@dataclass
class Row:
    """What was said of stores of one kind."""

    made: int = 0
    real: Counter[str] = field(default_factory=Counter)
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)

    def note(self, real: str, before: str, after: str) -> None:
        """One more store. real: "" where it is not on record."""
        self.made += 1
        self.real[real or "-"] += 1
        self.before[before] += 1
        self.after[after] += 1


ROWS: dict[str, Row] = {}


def row(name: str) -> Row:
    """The row of a kind of stores."""
    return ROWS.setdefault(name, Row())


def keep(path: Path) -> None:
    """Write the rows of this process for `add`."""
    path.write_text(json.dumps({name: vars(one) for name, one in ROWS.items()}), "utf-8")


def add(path: Path) -> None:
    """The rows of another process, too."""
    for name, kept in json.loads(path.read_text("utf-8")).items():
        one = row(name)
        one.made += kept["made"]
        one.real.update(kept["real"])
        one.before.update(kept["before"])
        one.after.update(kept["after"])


def write() -> None:
    """Store the page. What was not run keeps its row."""
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in _there()}
    lines |= {name: _line(name, ROWS[name]) for name in ROWS}
    PAGE.write_text(_HEAD + "".join(lines[name] for name in sorted(lines)), "utf-8")


def _there() -> list[str]:
    """The rows that the page has."""
    text = PAGE.read_text("utf-8") if PAGE.exists() else ""
    return text.partition(_HEAD)[2].splitlines(keepends=True)


def _line(name: str, told: Row) -> str:
    cells = (_counted(told.real), _counted(told.before), _counted(told.after))
    return f"| {name} | {told.made} | {' | '.join(cells)} |\n"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items()))
