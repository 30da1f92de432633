"""Doing what `verify` says: the first command that it names for each finding, until nothing is wrong."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from mqstore.store.config import BrokerConfig
from mqstore.store.next_commands import Given, settings
from mqstore.store.store import Store
from mqstore.store.verify.catalogue import Severity, catalogue
from mqstore.store.verify.finding_json import findings_json
from mqstore.store.verify.run import verify

from ..store.verify.mutations import NOW_MS
from .datadriven import run_here

ROUNDS = 2
WRONG = {severity.label for severity in (Severity.ERROR, Severity.FATAL)}


def told(root: Path, config: dict[str, str]) -> list[dict[str, Any]]:
    """What `verify --format json` says of a store: the findings that make it damaged."""
    with Store(root, BrokerConfig(config)) as store:
        found = verify(store, now_ms=NOW_MS)
    rows = findings_json(found, root, Given(settings(config)))
    return [row for row in rows if row["severity"] in WRONG]


def followed(root: Path, config: dict[str, str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The findings that are left, each that is beyond repair aside, and the commands that were run."""
    ran: list[str] = []
    beyond: set[str] = set()
    for _ in range(ROUNDS):
        rows = told(root, config)
        commands = dict.fromkeys(row["repair"] for row in rows)
        for command in filter(None, commands):
            beyond |= _run(command)
            ran.append(command)
        if not commands:
            break
    beyond |= {code for code, row in catalogue().items() if _by_hand(row.repair)}
    return [row for row in told(root, config) if row["code"] not in beyond], ran


def _by_hand(repair: str) -> bool:
    """Nothing mends it, or a look at it is all that is left."""
    return not repair or repair.startswith(("mqstore ", "df ", "touch "))


def _run(command: str) -> set[str]:
    """Run a command as it was pasted. Codes that it says are beyond repair."""
    words = shlex.split(command)
    if words[0] != "mqstore":
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return set()
    if "--apply" not in words:
        return set()
    result = run_here([*words[1:], "--yes", "--no-progress", "--format", "json"])
    assert result.code in (0, 1, 3), f"{command}: {result.stderr}"
    return {row["code"] for row in json.loads(result.stdout).get("beyond_repair", ())}
