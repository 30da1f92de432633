"""Findings: like ones in a row are one, and none is dropped."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from mqstore.store.findings.findings import Finding, Findings, how_many_more


def test_adjacent_rows_are_one_finding() -> None:
    findings = Findings()
    starts = np.arange(0, 60, 10)
    wrong = np.array([True, True, False, True, False, False])
    findings.add_rows("I-023", "f", wrong, starts, starts + 10, lambda row: f"row {row}")
    found = [(f.offset, f.length, f.count, f.message) for f in findings]
    assert found == [(0, 20, 2, "row 0"), (30, 10, 1, "row 3")]


def test_rows_of_two_windows_that_touch_are_one_finding() -> None:
    findings = Findings()
    findings.add("I-023", "f", "first", offset=0, length=10)
    findings.add("I-023", "f", "second", offset=10, length=5)
    findings.add("I-023", "g", "third", offset=15, length=5)
    found = [(f.path, f.offset, f.length, f.count, f.message) for f in findings]
    assert found == [("f", 0, 15, 2, "first"), ("g", 15, 5, 1, "third")]


def test_very_many_findings_become_one_wide_range() -> None:
    findings = Findings()
    for row in range(5000):
        findings.add("I-023", "f", "", offset=row * 100, length=1)
    found = list(findings)
    assert len(found) == 1000
    assert sum(f.count for f in found) == 5000
    assert max(f.end for f in found) == 4999 * 100 + 1


def test_the_worst_comes_first() -> None:
    findings = Findings()
    findings.add("I-009", "abort", "", unclean=True)
    findings.add("I-023", "f", "", offset=0, length=1)
    assert [f.code for f in findings] == ["I-023", "I-009"]


@pytest.mark.parametrize("number", ["1234", "1,234"])
def test_what_a_message_counts_is_not_counted_again(number: str) -> None:
    one = Finding.of("I-114", "f", f"{number} messages have no queue unit", count=1234)
    assert how_many_more(one, [one]) == ""
    assert how_many_more(one, [one, Finding.of("I-114", "f", "1 message", count=1)]) == (" (and 1 more, in 2 places)")


def _many_from(place: int, many: int) -> str:
    return f"{many} from {place} on"


def test_a_message_that_tells_how_many_tells_all_that_are_one_finding() -> None:
    findings = Findings()
    for offset, count in ((0, 1), (10, 2), (50, 4)):
        findings.add("I-042", "f", partial(_many_from, offset), offset=offset, length=10, count=count)
    for row in range(3000):
        findings.add("I-023", "f", partial(_many_from, row), offset=row * 100, length=1)
    found = list(findings)
    assert [(f.offset, f.message) for f in found if f.code == "I-042"] == [(0, "3 from 0 on"), (50, "4 from 50 on")]
    wide = next(f for f in found if f.count > 1 and f.code == "I-023")
    assert (wide.count, wide.message) == (2001, "2001 from 999 on")
