"""docs/invariants.md: the catalogue of `verify`, as `mqstore explain` tells it."""

from __future__ import annotations

from collections.abc import Iterator

from mqstore.store.findings.catalogue import GROUPS, Invariant, catalogue
from mqstore.store.findings.next_commands import command_in_general

_TITLES = {
    "layout": "Layout",
    "commit_log": "Commit log",
    "consume_queue": "Consume queues",
    "index": "Index",
    "checkpoint": "Checkpoint and abort",
    "timer": "Timer",
    "config": "Configuration",
    "compaction": "Compaction and controller",
    "start": "The next start",
}
_HEAD = """# Invariants

What `mqstore verify` checks, by code. `mqstore explain CODE` prints the same. How often each code was
found in damaged stores: [detection.md](detection.md). Severity is that of the usual case; a finding
may have a lower one and says why.

Written by `python man/generate.py` from `store/findings/catalogue`; do not edit.
"""
_PARTS = (("A broker", "broker"), ("Cause", "cause"), ("Broker's log", "log"), ("Effect", "effect"))


def markdown() -> str:
    """The page."""
    return "\n".join([_HEAD, *_groups()])


def _groups() -> Iterator[str]:
    told = list(catalogue().values())
    for group in GROUPS:
        rows = [row for row in told if row.group == group]
        if not rows:
            continue
        yield f"## {_TITLES[group]}\n"
        for row in rows:
            yield from _story(row)


def _story(row: Invariant) -> Iterator[str]:
    yield f"### {row.code}: {row.severity.label}\n"
    yield f"{row.statement}\n"
    for label, name in _PARTS:
        if text := getattr(row, name):
            yield f"* **{label}**: {text}"
    if row.repair:
        yield f"* **Next**: `{command_in_general(row.code)}`"
    if row.unchecked:
        yield f"* **Not checked**: {row.unchecked}"
    yield from (f"* <{link}>" for link in row.links)
    yield ""
