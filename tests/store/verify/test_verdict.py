"""No false alarm and no miss: what verify says of real stores is what their truth expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.findings.catalogue import Severity
from mqstore.store.verify.verdict import Verdict

from ... import slices
from ...stores import ALL, truth, unpack
from .mutations import verified

pytestmark = pytest.mark.long

FAST = ("4.3.1-killed", "5.1.4-compaction", "5.3.3-killed-bit", "5.5.0-timer-clean")
OPEN = "see load and queues"
RESTARTED = {
    "4.3.1-clean-no-queues": "damaged",  # this version does not dispatch after a clean stop
    "4.3.1-killed-bit": "damaged",  # the index has items behind the cut (B30)
    "4.3.1-killed-page": "damaged",  # a record torn in its properties is kept
    "4.9.7-clean-bit": "damaged",  # B30; offsets of consumers behind the cut
    "4.9.7-clean-index": "damaged",  # the index is not looked at
    "4.9.7-clean-no-queues": "clean",
    "4.9.7-killed-bit": "damaged",  # B30
    "4.9.7-killed-checkpoint": "clean",
    "4.9.7-killed-hole": "damaged",  # it did not start
    "4.9.7-killed-page": "damaged",  # torn in its properties
    "4.9.7-killed-queue": "clean",
    "4.9.7-killed-torn": "clean",
    "5.3.3-clean-index": "damaged",
    "5.3.3-clean-no-queues": "clean",
    "5.3.3-killed-bit": "damaged",  # cut, and old units begin in the new records
    "5.3.3-killed-checkpoint": "clean",
    "5.3.3-killed-hole": "damaged",  # the hole is not noticed
    "5.3.3-killed-page": "damaged",  # the same
    "5.3.3-killed-queue": "clean",
    "5.3.3-killed-torn": "damaged",  # torn in its properties
    "5.5.0-clean-no-queues": "clean",
    "5.5.0-killed-bit": "damaged",  # B30
    "5.5.0-killed-page": "damaged",  # torn in its properties
}
"""What the start of a broker leaves of a damaged store; by the name of the damaged one."""
UNCLEAN = {"4.9.7-killed-checkpoint", "5.3.3-killed-checkpoint"}
"""Their checkpoint was wiped. Nothing tells it from one that a broker had not written yet when it was killed."""
LEFT_BY_BROKERS = {
    "I-039",  # a transaction check puts a compressed message back as it was (B39)
    "I-078",  # a queue of a name with a slash (B12)
    "I-102",  # what a start after a kill indexes again
    "I-104",  # 4.3.1 indexes the whole log again beside an empty file (B20)
    "I-137",  # timer messages that were read again after a kill
    "I-150",  # a slave that has no topics of its master
}
"""Warnings that a store has that nobody has damaged."""


def _told(verdict: Verdict) -> str:
    found = (f for f in verdict.findings if f.severity > Severity.INFO)
    return "\n".join(f"{f.severity.label} {f.code} x{f.count} {f.path}: {f.message}" for f in found)


def _expected(name: str) -> str:
    if name in UNCLEAN:
        return "unclean"
    said: str = truth(name)["expected_verdict"]
    return said if said != OPEN else RESTARTED[name.removesuffix("-restarted")]


def _check(name: str, tmp_path: Path) -> None:
    verdict = verified(name, unpack(name, tmp_path))
    told = f"{name}: {verdict.status.value}\n{_told(verdict)}"
    assert verdict.status.value == _expected(name), told
    if truth(name)["expected_verdict"] == "clean":
        warnings = {f.code for f in verdict.findings if f.severity > Severity.INFO}
        assert warnings <= LEFT_BY_BROKERS, told


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FAST)
def test_the_verdict_is_the_expected_one(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", slices.pick(ALL, "verdicts"))
def test_the_verdict_of_every_store_is_the_expected_one(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)
