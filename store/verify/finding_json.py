"""A finding as the contract's JSON, with the exact next command in it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from .catalogue import Invariant, catalogue
from .finding import Finding


def next_command(finding: Finding, store: Path | str) -> str:
    """The command that mends what a finding is about, "" for none."""
    command = catalogue()[finding.code].repair if finding.repair is None else finding.repair
    return command.format(
        store=shlex.quote(str(store)),
        topic=shlex.quote(finding.topic or ""),
        queue_id=finding.queue_id,
        path=shlex.quote(finding.path),
        position=_position(finding),
    )


def command_of(told: Invariant) -> str:
    """The same for nothing in particular: words stand for what a finding would name."""
    words = {"store": "STORE", "topic": "TOPIC", "queue_id": "QUEUE", "path": "FILE"}
    return told.repair.format(**words, position="POSITION")


def _position(finding: Finding) -> int:
    """Of the log, where the finding is about bytes of one of its files."""
    name = Path(finding.path).name
    return (int(name) if name.isdigit() else 0) + (finding.offset or 0)


def finding_json(finding: Finding, store: Path | str) -> dict[str, Any]:
    """A finding of a store as the contract has it."""
    row: dict[str, Any] = {
        "type": "finding",
        "code": finding.code,
        "severity": finding.severity.label,
        "path": finding.path,
        "offset": finding.offset,
        "length": finding.length,
        "count": finding.count,
        "message": finding.message,
        "broker": catalogue()[finding.code].broker,
        "repair": next_command(finding, store),
    }
    if finding.topic is not None:
        row["topic"] = finding.topic
    if finding.queue_id is not None:
        row["queue_id"] = finding.queue_id
    if finding.unclean:
        row["unclean"] = True
    return row
