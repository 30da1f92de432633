"""Doing what `verify` says: the first command that it names for each finding, until nothing is wrong."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.catalogue import Severity, catalogue
from mqstore.store.findings.next_commands import Given, refused, settings
from mqstore.store.repair.recheck import why_unrepairable, with_open_repairs
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Verdict, findings_json

from ..store.verify.mutations import NOW_MS
from .datadriven import run_here

ROUNDS = 2
LOOKS = ("mqstore get ", "mqstore dump ", "mqstore inspect ", "mqstore salvage ", "df ")
WRONG = {severity.label for severity in (Severity.ERROR, Severity.FATAL)}


def verified(root: Path, config: dict[str, str]) -> Verdict:
    """What `verify` says of a store."""
    with StoreReader(root, BrokerConfig(config)) as store:
        return with_open_repairs(verify(store, now_ms=NOW_MS), store.layout)


def told(root: Path, config: dict[str, str]) -> list[dict[str, Any]]:
    """What `verify --format json` says of a store: the findings that make it damaged."""
    rows = findings_json(verified(root, config), root, Given(settings(config)))
    return [row for row in rows if row["severity"] in WRONG]


def followed(root: Path, config: dict[str, str]) -> tuple[list[dict[str, Any]], list[str]]:
    """The findings that are left, but for those that are told as beyond repair; the commands that ran.

    What a start does follows from other findings: it is left where none of these is.
    """
    ran: list[str] = []
    beyond: set[str] = set()
    for _ in range(ROUNDS):
        commands = dict.fromkeys(row["repair"] for row in told(root, config))
        for command in filter(None, commands):
            beyond |= _run(command)
            ran.append(command)
        if not commands:
            break
    verdict = verified(root, config)
    if verdict.unmendable or refused(verdict.findings):
        return [], ran
    rows = told(root, config)
    again = [row["repair"] for row in rows if row["repair"] in ran and "--apply" in row["repair"]]
    assert not again, f"proposed for ever: {again}"
    if any(_named(row, beyond) for row in rows):
        rows = [row for row in rows if catalogue()[row["code"]].group != "start"]
    return [row for row in rows if not _named(row, beyond)], ran


def _named(row: dict[str, Any], beyond: set[str]) -> bool:
    """It is told as beyond repair: by `repair`, or by `verify`, which has no command but a look at it."""
    looks = not row["repair"] or row["repair"].startswith(LOOKS)
    return row["code"] in beyond or (looks and bool(why_unrepairable(row["code"])))


def _run(command: str) -> set[str]:
    """Run a command as it was pasted, and where it ends with another one, that. Codes that are told as
    beyond repair.
    """
    words = shlex.split(command)
    if words[0] != "mqstore":
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return set()
    if "--apply" not in words:
        return set()
    result = run_here([*words[1:], "--yes", "--no-progress", "--format", "json"])
    assert result.code in (0, 1, 3), f"{command}: {result.stderr}"
    answer = json.loads(result.stdout)
    beyond = {row["code"] for row in answer.get("beyond_repair", ())}
    follow = answer["next"][0] if words[1] == "recover" and answer["next"] else ""
    return beyond | (_run(follow) if follow.startswith("mqstore repair ") else set())
