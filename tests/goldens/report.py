"""`compare`: what differs between two sets of goldens, for people."""

from __future__ import annotations

from pathlib import Path

from .output import Goldens, compare, difference, reasons

_SHOWN = 40
"""Differing rows whose texts are shown."""


def report(old: Path, new: Path, lines: int) -> int:
    """Print what differs. Exit code: 0 nothing but what is in the list, else 1."""
    left, right = Goldens(old), Goldens(new)
    found = compare(left.rows, right.rows, reasons())
    shown = list(found.differing.items())[:_SHOWN]
    before = left.texts({pair[0] for _, pair in shown})
    after = right.texts({pair[1] for _, pair in shown})
    for key, pair in shown:
        print(f"DIFFERS {key}")
        for line in difference(before.get(pair[0]), after.get(pair[1]), lines):
            print(f"    {line}")
    for key in list(found.differing)[_SHOWN:]:
        print(f"DIFFERS {key}")
    for reason in found.on_purpose:
        print(f"on purpose: {reason.met} rows, {reason.reason}")
    print(f"{found.same} rows are the same, {len(found.differing)} differ")
    return int(bool(found.differing))
