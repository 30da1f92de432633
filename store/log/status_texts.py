"""What readers say of records and ranges that are not simply messages, told for people."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data


@dataclass(frozen=True)
class MarkStory:
    """One mark. label: as in JSON; shown: as in text. next: a command that has to do with it, or ""."""

    label: str
    shown: str
    found: str
    broker: str
    next: str


@cache
def mark_stories() -> dict[str, MarkStory]:
    """Every mark by its label."""
    data = get_data(__package__, "status_texts.toml")
    assert data is not None
    return {name: MarkStory(name, **row) for name, row in tomllib.loads(data.decode()).items()}
