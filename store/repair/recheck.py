"""Check a store after its repair, and explain what no repair corrects.

Usually everything is planned again, and the plan must be empty. Queues and index made from a log in order are compared
with the plan instead: they must hold what was written and nothing else. What is still wrong when a repair has nothing
to change is listed, each with its reason.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from ..broker.snapshot import QueueId, Snapshot
from ..disk.byte_reader import opened, read
from ..disk.checkpoint import read_checkpoint
from ..disk.files import Edit
from ..disk.layout import Layout
from ..errors import StoreError
from ..findings.catalogue import Severity, catalogue
from ..findings.findings import Finding
from ..findings.next_commands import ALL, CUT, INTERRUPTED, MENDS, PARTS, Given, NextCommand, by_hand_for, cure_of
from ..index.compare import stored_files
from ..plan.observer import Policy, RecoveryOptions
from ..plan.plan import Plan
from ..recover import recovery
from ..verify.start import GROUP
from ..verify.verdict import Verdict
from .database import is_built
from .parts import Choice, RepairPart, covers, part_of
from .repair import Repair, analyze, needs_log, widened

_MADE = {RepairPart.QUEUE, RepairPart.INDEX, RepairPart.CHECKPOINT}
"""Parts made from a log; files of config/ that did not exist are made, too."""


def reanalyze(
    found: Repair,
    tell: Callable[[int], None] | None = None,
    jobs: int | None = None,
    proved: recovery.ProvedLog | None = None,
) -> Repair:
    """Return the repair of the store after `found.plan`. proved and errors as of `analyze`. Writes nothing."""
    layout = Layout.open(found.layout.root, found.layout.broker_config)
    request, plan = found.request, found.plan
    if not _is_compared(found):
        return analyze(layout, request.choice, request.version, request.made_ms, tell, jobs, request.kind, proved)
    undone = [edit for edit in plan.edits if not _is_done(edit, layout, plan)]
    return Repair(layout, request, replace(plan, edits=undone))


def _is_compared(found: Repair) -> bool:
    """Whether the check reads what was written instead of planning again."""
    plan, fix = found.plan, found.plan.database
    # a plan that only builds a RocksDB of queues may move queue files away
    only_database = fix and all(edit.kind == "move" or Path(edit.path) == fix.path for edit in plan.edits)
    if not (plan.items is not None or only_database) or found.interrupted:
        return False
    changed = ((part_of(found.layout, Path(edit.path)), edit.kind) for edit in plan.edits)
    return {part for part, kind in changed if part is not RepairPart.CONFIG or kind != "create"} <= _MADE


def _is_done(edit: Edit, layout: Layout, plan: Plan) -> bool:
    """Whether a file, or the database, holds what the plan says. Raises Unreadable, OSError."""
    if plan.database is not None and Path(edit.path) == plan.database.path:
        return is_built(layout, plan.database)
    if edit.kind == "rebuild":
        files = stored_files(Snapshot.of(layout).index)
        there = sum(file.header.index_count - 1 for file in files)
        return there == sum(len(batch.key_hash) for batch in plan.items or ())
    path = Path(edit.path)
    if edit.kind in ("move", "remove"):
        return not path.exists()
    if path == layout.checkpoint:  # full index files have raised one of its times
        written, wanted = read_checkpoint(path), plan.checkpoint
        return written is not None and wanted is not None and written[:2] == wanted[:2]
    pieces = edit.pieces if edit.data is None else ((edit.offset, edit.data),)
    with opened(path) as descriptor:
        whole = edit.kind != "create" or os.fstat(descriptor).st_size == edit.length
        return whole and all(read(descriptor, len(data), offset, str(path)) == data for offset, data in pieces)


def with_open_repairs(
    verdict: Verdict, layout: Layout, version: str | None = None, tell: Callable[[int], None] | None = None
) -> Verdict:
    """Return a verdict of `verify` that also knows whether repairs of parts have anything to do (`to_renumber`).

    If a start needs no recovery and an error asks for a repair, the plan of `recover` is made again, with these parts.
    What `verify` has found in order in the log is not read again for that; the verdict that is returned lacks it.
    version: the broker's, None: the guess. tell: called with the log position reached. Writes nothing.
    """
    asking = any(cure_of(error) in PARTS | {ALL} for error in verdict.serious)
    proved = None if verdict.verified is None else recovery.ProvedLog(verdict.verified, None)
    verdict = replace(verdict, verified=None)
    if not (verdict.recovered and asking) or verdict.to_renumber is not None:
        return verdict
    options = RecoveryOptions(Policy.KEEP, applicable=False)
    try:
        exact = needs_log(verdict.findings)
        found = recovery.analyze(layout, version, options=options, tell=tell, proved=proved, exact=exact)
        found = widened(found, verdict.findings)
    except StoreError:  # only for the verdict; a repair reports it
        return verdict
    shifted = tuple(map(str, found.plan.shifted)) if found.plan is not None and found.recovered else None
    return replace(verdict, recovered=found.recovered, to_renumber=shifted)


EVERYTHING = Choice()


class Unrepairable(NamedTuple):
    """Findings of one code that stay. path, offset, message: of the first. findings: their number. why: why no repair
    corrects them. now: what is left to do. command: what shows it or helps, ready to paste, "" for none. does: purpose
    of the command.
    """

    code: str
    severity: Severity
    findings: int
    path: str
    offset: int | None
    message: str
    why: str
    now: str
    command: str = ""
    does: str = ""

    def to_json(self) -> dict[str, Any]:
        row = {name: value for name, value in self._asdict().items() if name != "does"}
        return {**row, "severity": self.severity.label}


class JudgedRepair(NamedTuple):
    """A store as `repair` sees it: the plan, and the verdict on the whole store."""

    repair: Repair
    verdict: Verdict

    def beyond(self, given: Given) -> list[Unrepairable]:
        """Return what stays wrong of the parts asked for, if nothing is left to do."""
        found = self.repair
        if not found.nothing_to_do:
            return []
        return unrepairable_of(self.verdict, found.layout, found.request.choice, given)

    @property
    def better_cut(self) -> bool:
        """`verify.start.better_cut` for this plan: it changes the log, too."""
        plan = self.repair.plan if self.repair.request.choice.everything else None
        fills = plan is not None and bool(plan.fills or plan.cut)
        return fills and any(finding.repair == CUT for finding in self.verdict.findings)

    def left(self) -> list[Finding]:
        """Return the findings without those that the repair was asked to correct and that no plan corrects."""
        choice, shifted = self.repair.request.choice, self.verdict.to_renumber or ()

        def in_vain(finding: Finding) -> bool:
            if finding.code == INTERRUPTED or cure_of(finding) not in MENDS:
                return False
            queue = QueueId(finding.topic or "", finding.queue_id or 0)
            return asked_for(finding, choice) and str(queue) not in shifted

        return [finding for finding in self.verdict.findings if not in_vain(finding)]


def unrepairable_of(
    verdict: Verdict, layout: Layout, choice: Choice = EVERYTHING, given: Given | None = None
) -> list[Unrepairable]:
    """Return the errors of a verdict in the parts of a choice. Findings about a start follow from the others and are
    left out. given: further options for a command, None for those that the layout was opened with.
    """
    if any(finding.code == INTERRUPTED for finding in verdict.findings):
        return []  # what is wrong may be half of a change
    given = Given(layout.broker_config.words).at(layout) if given is None else given
    errors = [f for f in verdict.serious if catalogue()[f.code].group != GROUP]
    errors = [finding for finding in errors if asked_for(finding, choice)]
    found: dict[str, Unrepairable] = {}
    for first in errors:
        if first.code in found:
            continue
        texts = _texts_of(first.code)
        command = _by_hand(first, errors, verdict.to_renumber or (), layout, given)
        found[first.code] = Unrepairable(
            first.code,
            first.severity,
            sum(finding.count for finding in errors if finding.code == first.code),
            first.path.removeprefix(f"{layout.root}/"),
            first.offset,
            first.message,
            texts["why"],
            texts["now"],
            str(command or ""),
            texts.get("does", "") if command else "",
        )
    return list(found.values())


def _by_hand(
    first: Finding, errors: list[Finding], shifted: Sequence[str], layout: Layout, given: Given
) -> NextCommand | None:
    """Return the command for the first finding of a code. If it names a queue: a shifted queue that an error of this
    code names, or if no error of this code has a queue, any error. Without one, it is the finding's own.
    """
    template = _texts_of(first.code).get("command", "")
    if "{queue}" in template:
        mine = [error for error in errors if first.topic is None or error.code == first.code]
        named = (f for f in mine if f.topic is not None and str(QueueId(f.topic, f.queue_id or 0)) in shifted)
        queue = next(named, None)
        if queue is None:
            template = ""
        else:
            first = replace(first, topic=queue.topic, queue_id=queue.queue_id)
    return by_hand_for(first, layout.root, given, template)


def asked_for(finding: Finding, choice: Choice) -> bool:
    """Whether the choice includes the part that would correct a finding."""
    if choice.everything:
        return True
    if cure_of(finding) not in choice.parts:
        return False
    if finding.topic is None or not choice.queues:
        return True
    queue = QueueId(finding.topic, finding.queue_id or 0)
    return any(covers(named, queue) for named in choice.queues)


def why_unrepairable(code: str) -> str:
    """Return why no repair corrects findings of this code."""
    return _texts_of(code)["why"]


def _texts_of(code: str) -> dict[str, str]:
    return unrepairable_texts().get(code) or unrepairable_texts()["OTHER"]


@cache
def unrepairable_texts() -> dict[str, dict[str, str]]:
    """Code, or OTHER, → why no repair corrects it, and what is left to do."""
    return tomllib.loads(files(__package__).joinpath("unrepairable.toml").read_text("utf-8"))
