"""The verdict on a store: one status and one first sentence, whichever command gives it.

`inspect`, `verify`, `recover` and `repair` collect findings, including those of the next start (`start.py`), and take
status and sentence from here; `cli/exit_codes.py` makes exit codes of the status.

`findings_json` gives findings as JSON objects, each with its next command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..counted import counted
from ..findings.catalogue import Severity, catalogue
from ..findings.findings import Finding
from ..findings.next_commands import INTERRUPTED, NOTHING_GIVEN, Given, NextCommand, command_for, next_commands, refused
from .context import LogFacts, LogWatcher

if TYPE_CHECKING:
    from ..audit.verified import VerifiedLog
    from ..start.config import ConfigStart


class Status(StrEnum):
    """The verdict in one word."""

    CLEAN = "clean"
    UNCLEAN = "unclean"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Verdict:
    """The verdict with all its facts. findings: worst first. records, bytes: of the log, as far as it was read.

    stopped_at: log position where an interrupted run can continue. live: somebody wrote meanwhile.
    """

    status: Status
    findings: list[Finding]
    records: int
    bytes: int
    seconds: float
    #: What was not checked, and why.
    unread: list[str] = field(default_factory=list)
    stopped_at: int | None = None
    live: bool = False
    #: For a run that continues at `stopped_at`.
    facts: LogFacts = field(default_factory=LogFacts)
    #: Why neither `recover` nor `repair` takes a store of this kind.
    unmendable: str = ""
    #: `recover` has nothing to do: no repair mends what is still wrong with its parts. None: not known.
    recovered: bool | None = None
    #: What of the log is in order for a start, for the plan that is made next: if the store is damaged, or if
    #: `Scope.proof` asks for it.
    verified: VerifiedLog | None = field(default=None, compare=False, repr=False)
    #: What the next start does, line by line, each with a label; empty if it was not predicted.
    start: Sequence[tuple[str, str]] = field(default=(), compare=False, repr=False)
    #: What the next start makes of config/.
    config: ConfigStart | None = field(default=None, compare=False, repr=False)
    #: The instance of `Scope.watch`.
    watched: LogWatcher | None = field(default=None, compare=False, repr=False)
    #: The directory or file of the store that alone was asked for.
    part: Path | None = None
    #: Repairs of parts have nothing to do either, except to renumber these queues. None: not known.
    to_renumber: Sequence[str] | None = None

    @property
    def serious(self) -> list[Finding]:
        """Findings of errors and worse, the worst first."""
        return [finding for finding in self.findings if finding.severity >= Severity.ERROR]

    @property
    def known_of_repairs(self) -> dict[str, Any]:
        """What `next_commands` has to know of repairs."""
        return {"recovered": self.recovered, "to_renumber": self.to_renumber, "unmendable": self.unmendable}

    def __repr__(self) -> str:
        found = counted(len(self.findings), "finding")
        return f"Verdict({self.status.value}: {found} in {counted(self.records, 'record')})"

    def _repr_html_(self) -> str | None:
        """The findings as a table, for notebooks."""
        from ..output.escaped import table_html

        rows = [(f.severity.label, f.code, f.path, f.message) for f in self.findings]
        return table_html(repr(self), ("severity", "code", "path", "finding"), rows)


NO_PLAN, NO_START, LOSES, HIDES, UNFIRED, FORGETS = "I-187", "I-180", "I-181", "I-182", "I-183", "I-188"
UNREAD, END_GONE = "I-190", "I-191"
_PREDICTED = frozenset({"commit_log", "consume_queue", "index", "checkpoint"})
"""Groups whose findings a predicted start takes into account."""
OF_THE_START = (INTERRUPTED, NO_PLAN, NO_START, LOSES, HIDES, UNFIRED, UNREAD, FORGETS)
"""Codes about what a start does, the most urgent first: the first sentence is that of the first of them."""


def status_of(findings: Iterable[Finding]) -> Status:
    worst, unclean = Severity.INFO, False
    for finding in findings:
        worst = max(worst, finding.severity)
        unclean |= finding.unclean
    if worst >= Severity.ERROR:
        return Status.DAMAGED
    return Status.UNCLEAN if unclean else Status.CLEAN


def first_sentence(verdict: Verdict, root: str | PathLike[str]) -> str:
    """Return the verdict on the store at `root` for somebody who has no time, without a full stop.

    "Safe to start" is said only if everything was checked, the next start included.
    """
    serious = verdict.serious
    start = {finding.code: finding for finding in reversed(serious)}
    for code in OF_THE_START:
        if code in start:
            return f"Do not start a broker: {start[code].message}"
    if starts_last(verdict):
        return f"Start this broker last: {start[END_GONE].message}"
    if serious:
        worst = serious[0]
        return f"Damaged: {worst.place(root)}: {worst.message}{_more(serious)}"
    but = but_unserved(verdict)
    if verdict.live:
        return f"In use, and in order{_as_far(verdict)}{but}"
    if verdict.status is Status.UNCLEAN:
        return f"Not shut down cleanly, nothing is damaged{_as_far(verdict)}{but}"
    return f"In order{_as_far(verdict)}{but}" if verdict.unread else f"Safe to start{but}"


def starts_last(verdict: Verdict) -> bool:
    """Whether only the end of the log is gone, which comes again if another broker of the group is the master."""
    return {finding.code for finding in verdict.serious} == {END_GONE}


OTHERS_FIRST = "start the brokers with the whole log first, until one of them is the master, and this one last"
ELSE_ALONE = "if no other broker has it, start this one: nothing more is lost"


def _unserved(verdict: Verdict) -> tuple[str, str]:
    """Return how many messages wait in delay levels that messageDelayLevel does not have, and how many levels it must
    have; empty texts if none does. Only their findings of I-146 name a queue.

    They are whole, and no start takes them away: that is no damage, and there is nothing to repair.
    """
    found = [(f.count, f.queue_id + 1) for f in verdict.findings if f.code == "I-146" and f.queue_id is not None]
    if not found:
        return "", ""
    waiting = counted(sum(count for count, _ in found), "message waits", "messages wait", form=",")
    return waiting, counted(max(level for _, level in found), "level")


def but_unserved(verdict: Verdict) -> str:
    """Return the end of a verdict for messages that no broker serves, though nothing is damaged: in levels that
    messageDelayLevel does not have, or in first files of the log that are gone; "" without any.
    """
    waiting, levels = _unserved(verdict)
    unserved = waiting and f", but {waiting} in delay levels that no broker serves until messageDelayLevel has {levels}"
    gone = lacks_first_files(verdict).partition(" (")[0]
    return unserved + (gone and f", but {gone}")


def give_levels(verdict: Verdict) -> str:
    """Return what to do for these messages, without a capital and a full stop; "" without any."""
    waiting, levels = _unserved(verdict)
    return waiting and f"give messageDelayLevel {levels}: {waiting} in levels that it does not have"


def before_timers(verdict: Verdict) -> str:
    """Return what to do before a timed message is sent, where none waits yet and a start would fire none; "" else."""
    unfired = any(f.code == UNFIRED and f.severity is Severity.WARNING for f in verdict.findings)
    return "before timed messages are sent, mend the timer, which fires none yet" if unfired else ""


def lacks_first_files(verdict: Verdict) -> str:
    """Return what tells that the first files of the log are gone, before their time; "" if nothing does. Of warnings
    of I-002 only these have a place. A start makes it no worse.
    """
    gone = (f.message for f in verdict.findings if f.code == "I-002" and f.length and f.severity is Severity.WARNING)
    return next(gone, "")


def harmless(verdict: Verdict) -> bool:
    """Return whether all serious findings are in files that a predicted start knows: no recovery does better."""
    groups = {catalogue()[finding.code].group for finding in verdict.serious}
    return bool(verdict.recovered) and groups <= _PREDICTED


def what_now(verdict: Verdict, commands: Sequence[NextCommand]) -> str:
    """Return a sentence before the next commands, if findings call for them, without a capital and a full stop."""
    if verdict.serious:
        changes = any(each.changes for each in commands)
        if starts_last(verdict) and not changes:
            return f"{OTHERS_FIRST}; {ELSE_ALONE}"
        nothing = harmless(verdict) and not changes
        return NO_WORSE if nothing else "do not start a broker on it yet"
    plan = any("--apply" in each.words for each in commands)
    return "a start recovers it; so does this" if plan else "a start recovers it"


NO_WORSE = "no repair can mend it, but a broker start does not make it worse"


def _more(serious: Sequence[Finding]) -> str:
    others = len({finding.code for finding in serious}) - 1
    if not others:
        count = sum(finding.count for finding in serious) - 1
        return f" (and {count:,} more)" if count else ""
    return f" (and {counted(others, 'other kind')} of damage)"


def _as_far(verdict: Verdict) -> str:
    return ", as far as it was checked" if verdict.unread else ""


def commands_of(
    verdict: Verdict, findings: Iterable[Finding], store: PathLike[str] | str, given: Given
) -> list[NextCommand]:
    """Return `next_commands` of some findings of a verdict, with all that the verdict knows of repairs."""
    return next_commands(findings, store, given, whole=not verdict.unread, **verdict.known_of_repairs)


def tidying_of(verdict: Verdict, store: PathLike[str] | str, given: Given) -> list[NextCommand]:
    """Return what mends the warnings of a store without errors, not what only shows them; nothing without a plan, or if
    not all was checked.
    """
    if verdict.live or verdict.unmendable or verdict.unread:
        return []
    recovered = verdict.recovered or None
    commands = next_commands(verdict.findings, store, given, recovered=recovered, least=Severity.WARNING)
    return [each for each in commands if each.changes]


def findings_json(verdict: Verdict, store: Path | str, given: Given = NOTHING_GIVEN) -> Iterator[dict[str, Any]]:
    """Yield all findings of a store as JSON objects. given: options for the next commands."""
    commands, known = commands_of(verdict, verdict.findings, store, given), verdict.known_of_repairs
    known["unmendable"] = verdict.unmendable or refused(verdict.findings)
    for finding in verdict.findings:
        yield _finding_json(finding, command_for(finding, store, commands, given, **known))


def _finding_json(finding: Finding, command: NextCommand | None) -> dict[str, Any]:
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
