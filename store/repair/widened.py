"""`recover` ends sound: its plan under `keep`, widened by what `repair --all` mends.

A start looks at little of a store. What `verify` finds besides, and what a plan itself leaves behind
where it takes messages out of queues or changes records, is put right in the same session.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..layout import Layout
from ..recovery.by_source import as_configured
from ..recovery.cases import Case, case_named
from ..recovery.config_rules import STATISTICS
from ..recovery.plan import Plan
from ..recovery.profiles import profile_of
from ..recovery.recovery import Recovery, switches_of
from ..recovery.recovery import plan_again as recovery_again
from ..recovery.snapshot import Snapshot
from ..recovery.wish import Policy, Wish
from ..verify.catalogue import Severity
from ..verify.finding import Finding
from .parts import Choice
from .repair import Request, mend_parts

_AFTER_ANY_KILL = frozenset(
    {"I-007", "I-009", "I-043", "I-070", "I-101", "I-111", "I-113", "I-118"}
)
"""Codes of edits that change neither records nor the ends of queues, but to complete them."""


def widened(found: Recovery, findings: Iterable[Finding]) -> Recovery:
    """The same with a plan that mends what no start looks at, where that is needed. Under `keep` only.

    findings: of `verify`. Raises as `examine`.
    """
    plan = found.plan
    if plan is None or found.interrupted or found.wish.policy is not Policy.KEEP:
        return found
    wrong = any(finding.severity >= Severity.ERROR for finding in findings)
    wrong |= not STATISTICS.issuperset(found.config.backups)
    if not wrong and all(_AFTER_ANY_KILL.issuperset(edit.codes) for edit in plan.edits):
        return found
    wish = replace(found.wish, exact=True, whole=True)
    again = plan_again(found.layout, found.main_version, wish)
    wide = replace(found, plan=again, wish=wish)
    if not again.edits or plan.edits:
        return wide
    predictions = [replace(each, case=_beside(each.case)) for each in found.predictions]
    return replace(wide, predictions=predictions, plan_case=_beside(found.plan_case))


def plan_again(layout: Layout, version: str, wish: Wish) -> Plan:
    """The plan of a recovery, widened or not, made again from what is on disk now. Raises as `examine`."""
    plan = recovery_again(layout, version, wish)
    snapshot = Snapshot.of(layout)
    if not wish.whole or not snapshot.log:
        return plan
    profile = as_configured(profile_of(version), layout.broker_config)
    request = Request(Choice(), profile.version, wish.made_ms)
    return mend_parts(snapshot, profile, switches_of(snapshot), plan, request)[0]


def _beside(case: Case) -> Case:
    """The case of a store that is in order for a start, and not for a plan."""
    return case_named("beside-the-log") if case.label == "in-order" else case
