"""`recover` ends sound: its plan under `keep`, widened by what `repair --all` mends.

A start looks at little of a store. What `verify` finds besides, and what a plan itself leaves behind
where it takes messages out of queues or changes records, is put right in the same session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..broker.profiles import profile_of
from ..broker.snapshot import Snapshot
from ..disk.layout import Layout
from ..errors import InvalidInput
from ..findings.catalogue import Severity
from ..findings.findings import Finding
from ..plan.observer import Policy, RecoveryOptions
from ..plan.plan import Plan
from ..recover.cases import Case, case_named
from ..recover.recovery import Recovery
from ..recover.recovery import plan_again as recovery_again
from ..start.config_load import STATISTICS
from ..start.log import as_configured, switches_of
from .parts import Choice, Part, part_of_code
from .repair import Request, mend_parts

_AFTER_ANY_KILL = frozenset(
    {"I-007", "I-009", "I-043", "I-070", "I-101", "I-111", "I-113", "I-118"}
)
"""Codes of edits that change neither records nor the ends of queues, but to complete them."""

_BESIDE_THE_LOG = frozenset({Part.CONFIG, Part.CHECKPOINT, Part.TIMER, Part.COMPACTION})
"""What is mended without a look at the records: the plan that is there stays, and is added to."""


def widened(found: Recovery, findings: Sequence[Finding]) -> Recovery:
    """The same with a plan that mends what no start looks at, where that is needed. Under `keep` only.

    findings: of `verify`. Where they are of parts that are mended without the log, it is not read again.
    Raises as `analyze`.
    """
    played, exact_plan = found.played, found.exact_plan
    found = replace(found, played=None, exact_plan=None)
    plan = found.plan
    if plan is None or found.interrupted or found.wish.policy is not Policy.KEEP:
        return found
    parts = _parts(found, findings)
    if not all(_AFTER_ANY_KILL.issuperset(edit.codes) for edit in plan.edits):
        parts = frozenset(Part)
    if not parts:
        return found
    beside = parts <= _BESIDE_THE_LOG
    names = tuple(sorted(parts if beside else Part))
    wish = found.wish._replace(exact=not beside, parts=names)
    if beside:
        again = _with_parts(found.layout, found.main_version, wish, plan, findings)
    else:
        whole = exact_plan or recovery_again(found.layout, found.main_version, wish, played)
        again = _with_parts(found.layout, found.main_version, wish, whole, findings)
    wide = replace(found, plan=again, wish=wish)
    if not again.edits or plan.edits:
        return wide
    predictions = [replace(each, case=_beside(each.case)) for each in found.predictions]
    return replace(wide, predictions=predictions, plan_case=_beside(found.plan_case))


def plan_again(layout: Layout, version: str, wish: RecoveryOptions) -> Plan:
    """The plan of a recovery, widened or not, made again from what is on disk now. Raises as `analyze`."""
    return _with_parts(layout, version, wish, recovery_again(layout, version, wish))


def _with_parts(
    layout: Layout,
    version: str,
    wish: RecoveryOptions,
    plan: Plan,
    findings: Sequence[Finding] | None = None,
) -> Plan:
    """The plan of a recovery and what is mended besides in the parts that the wish names."""
    snapshot = Snapshot.of(layout)
    if not wish.parts or not snapshot.log:
        return plan
    profile = as_configured(profile_of(version), layout.broker_config)
    choice = Choice(frozenset(Part(name) for name in wish.parts) | {Part.LOG, Part.ABORT})
    request = Request(choice, profile.version, wish.made_ms)
    return mend_parts(snapshot, profile, switches_of(snapshot), plan, request, findings)[0]


def _parts(found: Recovery, findings: Iterable[Finding]) -> frozenset[Part]:
    """The parts that hold an error; all of them where it is one of the log, or of none, or where a
    part that needs the log has a warning beside it.
    """
    parts, warned = _parts_with(findings)
    if not STATISTICS.issuperset(found.config.backups):
        parts.add(Part.CONFIG)
    return frozenset(parts | warned) if parts else frozenset()


def needs_log(findings: Iterable[Finding]) -> bool:
    """A plan is going to be widened by parts that need the log (`analyze` with `exact`), whatever else is found."""
    return not _parts_with(findings)[0] <= _BESIDE_THE_LOG


def _parts_with(findings: Iterable[Finding]) -> tuple[set[Part], set[Part]]:
    """The parts that hold an error, and those with a warning alone."""
    parts, warned = set[Part](), set[Part]()
    for finding in findings:
        part = _part_of(finding)
        if finding.severity >= Severity.ERROR:
            parts |= {part} if part is not None else set(Part)
        elif finding.severity >= Severity.WARNING and not finding.unclean and part is not None:
            warned.add(part)
    return parts, warned


def _part_of(finding: Finding) -> Part | None:
    """The part that mends it, None where none does."""
    try:
        return part_of_code(finding.code)
    except InvalidInput:
        return None


def _beside(case: Case) -> Case:
    """The case of a store that is in order for a start, and not for a plan."""
    return case_named("beside-the-log") if case.label == "in-order" else case
