"""Rows of goldens in files, and what differs between two of them.

`rows-I-of-N.jsonl` has a line for each row: case, command, policy, digest. `texts-I-of-N.jsonl.gz` has
the text of each digest once, so that a comparison can show what differs.
"""

from __future__ import annotations

import difflib
import gzip
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple, Self

from .normal import digest

SLICE = Path(__file__).with_name("slice.jsonl")
ON_PURPOSE = Path(__file__).with_name("on_purpose.toml")
MISSING = "-"
_ROWS, _TEXTS = "rows-*.jsonl", "texts-*.jsonl.gz"


class Key(NamedTuple):
    """What a row is about."""

    store: str
    damage: str
    version: str
    policy: str
    command: str

    def __str__(self) -> str:
        words = (self.store, self.damage, self.version or "guess", self.policy, self.command)
        return " | ".join(word for word in words if word)


def line_of(key: Key, text_digest: str) -> str:
    """A row as it is stored."""
    return json.dumps({**key._asdict(), "digest": text_digest}, ensure_ascii=False) + "\n"


class Writer:
    """Writes the rows of one part of a run; leave the context to close its files."""

    def __init__(self, folder: Path, part: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rows = folder / f"rows-{part}.jsonl"
        self._rows: IO[str] = rows.open("w", encoding="utf-8")
        texts = folder / f"texts-{part}.jsonl.gz"
        self._texts: IO[str] = gzip.open(texts, "wt", 6, encoding="utf-8")  # noqa: SIM115 (as above)
        self._known: set[str] = set()

    def add(self, key: Key, text: str) -> None:
        """One more row."""
        found = digest(text)
        self._rows.write(line_of(key, found))
        if found not in self._known:
            self._known.add(found)
            self._texts.write(json.dumps([found, text]) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()
        self._texts.close()


@dataclass(frozen=True)
class Goldens:
    """The rows of a folder, of one file of rows, or of a run in memory."""

    folder: Path

    @cached_property
    def rows(self) -> dict[Key, str]:
        """Key → digest."""
        files = sorted(self.folder.glob(_ROWS)) if self.folder.is_dir() else [self.folder]
        return dict(row for path in files for row in rows_in(path.read_text("utf-8").splitlines()))

    def texts(self, wanted: set[str]) -> dict[str, str]:
        """The texts of these digests, as far as they are kept."""
        found = {}
        for path in sorted(self.folder.glob(_TEXTS)):
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                for name, text in map(json.loads, lines):
                    if name in wanted:
                        found[name] = text
        return found


def rows_in(lines: Iterable[str]) -> Iterator[tuple[Key, str]]:
    """Rows as `line_of` stores them."""
    for row in map(json.loads, lines):
        yield Key(*(row[name] for name in Key._fields)), row["digest"]


@dataclass
class Reason:
    """Rows that differ on purpose. where: a pattern for the text of a key, all of it."""

    where: str
    reason: str
    met: int = field(default=0)

    def covers(self, key: Key) -> bool:
        """Whether a row is one of them."""
        return re.fullmatch(self.where, str(key)) is not None


def reasons(path: Path = ON_PURPOSE) -> list[Reason]:
    """What stands in the list of differences on purpose."""
    listed = tomllib.loads(path.read_text("utf-8")).get("difference", [])
    return [Reason(row["where"], row["reason"]) for row in listed]


@dataclass
class Comparison:
    """Two sets of rows. differing: key → digests of old and new, `-` where there is no row."""

    same: int
    differing: dict[Key, tuple[str, str]]
    on_purpose: list[Reason]


def compare(old: dict[Key, str], new: dict[Key, str], known: list[Reason]) -> Comparison:
    """What differs, and is not in the list. Raises nothing."""
    same, differing = 0, {}
    for key in sorted(old.keys() | new.keys()):
        pair = old.get(key, MISSING), new.get(key, MISSING)
        if pair[0] == pair[1]:
            same += 1
        elif covering := next((reason for reason in known if reason.covers(key)), None):
            covering.met += 1
        else:
            differing[key] = pair
    return Comparison(same, differing, known)


def difference(old: str | None, new: str | None, most: int) -> list[str]:
    """Lines that tell two texts apart, at most so many."""
    if old is None or new is None:
        return ["the text is not kept"]
    found = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1)
    lines = [line for line in found if not line.startswith(("---", "+++"))]
    return [*lines[:most], f"… {len(lines) - most} more lines"] if len(lines) > most else lines
