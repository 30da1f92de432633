"""A finding as a JSON object, with the exact next command in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..next_commands import NOTHING_GIVEN, Command, Given, command_for, next_commands, refused
from .catalogue import catalogue
from .findings import Finding
from .verdict import Verdict


def findings_json(
    verdict: Verdict, store: Path | str, given: Given = NOTHING_GIVEN
) -> Iterator[dict[str, Any]]:
    """All findings of a store as JSON objects. given: options that a next command needs."""
    found, unmendable = verdict.findings, verdict.unmendable or refused(verdict.findings)
    whole = not verdict.unread
    commands = next_commands(found, store, given, whole=whole, unmendable=unmendable)
    for finding in found:
        command = command_for(finding, store, commands, given, unmendable=unmendable)
        yield _finding_json(finding, command)


def _finding_json(finding: Finding, command: Command | None) -> dict[str, Any]:
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
        "repair": str(command or ""),
    }
    if finding.topic is not None:
        row["topic"] = finding.topic
    if finding.queue_id is not None:
        row["queue_id"] = finding.queue_id
    if finding.unclean:
        row["unclean"] = True
    return row
