"""A finding as the contract's JSON, with the exact next command in it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from .catalogue import catalogue
from .finding import Finding


def next_command(finding: Finding, store: Path) -> str:
    """The command that mends what a finding is about, "" for none."""
    return catalogue()[finding.code].repair.format(
        store=shlex.quote(str(store)),
        topic=shlex.quote(finding.topic or ""),
        queue_id=finding.queue_id,
        path=shlex.quote(finding.path),
    )


def finding_json(finding: Finding, store: Path) -> dict[str, Any]:
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
