"""No false alarm and no miss: what verify says of real stores is what their truth expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.verify.catalogue import Severity
from mqstore.store.verify.run import Verdict

from ... import slices
from ...stores import ALL, truth, unpack
from .mutations import verified

FAST = (
    "4.3.1-killed",
    "4.9.7-clean",
    "5.1.4-compaction",
    "5.3.3-killed-bit",
    "5.3.3-timer-clean",
    "5.5.0-lmq-poison",
)
LARGE = ("5.3.3-large",)
OPEN = "see load and queues"


def _told(verdict: Verdict) -> str:
    found = (f for f in verdict.findings if f.severity > Severity.INFO)
    return "\n".join(f"{f.severity.label} {f.code} x{f.count} {f.path}: {f.message}" for f in found)


def _expected(name: str) -> str:
    said: str = truth(name)["expected_verdict"]
    return said


def _check(name: str, tmp_path: Path) -> None:
    verdict = verified(name, unpack(name, tmp_path))
    told = f"{name}: {verdict.status.value}\n{_told(verdict)}"
    assert verdict.status.value == _expected(name), told


@pytest.mark.slow
@pytest.mark.parametrize("name", slices.pick([n for n in ALL if _expected(n) != OPEN], "verdicts"))
def test_the_verdict_is_the_expected_one(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)
