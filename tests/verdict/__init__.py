"""One verdict: what `inspect`, `verify`, `recover` and `repair` say of a store, before and after a change.

    said = said_of(root, config, version)       # nothing is written
    for text in said.contradictions(): ...      # one command says another thing than the next
    after = recovered(root, config, version)    # the store as `recover --apply` leaves it

Everything is asked of the library, as the commands ask it, without their text.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.byte_reader import noting
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import StoreError
from mqstore.store.findings.catalogue import GROUPS, catalogue
from mqstore.store.inspect.description import describe
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.recover import recovery
from mqstore.store.recover.recovery import Recovery
from mqstore.store.repair import repair
from mqstore.store.repair.parts import Choice
from mqstore.store.repair.recheck import unrepairable_of, unrepairable_texts
from mqstore.store.repair.repair import Repair, replan_with_parts, widened
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.verify.context import Scope
from mqstore.store.verify.judged import with_start
from mqstore.store.verify.run import at_first_sight, verify
from mqstore.store.verify.start import GROUP
from mqstore.store.verify.verdict import UNREAD, Status, Verdict, first_sentence

from ..store.verify.mutations import NOW_MS

_OTHERS = frozenset(GROUPS) - {GROUP}


@dataclass(frozen=True)
class Said:
    """What the commands say of one store. refused: why `recover` does not take it, "" where it does.

    beyond: codes of errors that no repair mends, each with its reason.
    """

    root: Path
    verdict: Verdict
    first_sight: Status
    found: Recovery | None
    refused: str
    beyond: frozenset[str]

    @property
    def status(self) -> Status:
        """The one verdict."""
        return self.verdict.status

    @property
    def codes(self) -> list[str]:
        """Of all errors, but those of the start, which follow from these."""
        found = (f.code for f in self.verdict.serious if catalogue()[f.code].group != GROUP)
        return list(dict.fromkeys(found))

    @property
    def of_start(self) -> list[str]:
        """Codes of what a start does."""
        found = (f.code for f in self.verdict.serious if catalogue()[f.code].group == GROUP)
        return list(dict.fromkeys(found))

    def __str__(self) -> str:
        to_do = self.found is not None and not self.found.nothing_to_do
        plan = " with a plan" if to_do else ""
        codes = ", ".join([*self.of_start, *self.codes]) or "no error"
        return f"{self.status.value}{plan} ({codes}): {first_sentence(self.verdict, self.root)}"

    def contradictions(self) -> Iterator[str]:
        """What cannot be true at once."""
        found = self.found
        if found is not None:
            if found.harmful and self.status is not Status.DAMAGED:
                yield f"a start or plan does harm, and the verdict is {self.status.value}"
            if found.crashed and self.status is Status.CLEAN:
                yield "abort is there, and the verdict is clean"
        if self.first_sight is Status.DAMAGED and self.status is not Status.DAMAGED:
            yield f"damaged at first sight, {self.status.value} at the second"
        sentence = first_sentence(self.verdict, self.root)
        if sentence.startswith("Safe to start") != self._safe:
            yield f"the sentence is {sentence!r}"

    @property
    def _safe(self) -> bool:
        whole = not self.verdict.unread and not self.verdict.live
        return self.status is Status.CLEAN and whole


def said_of(root: Path, config: BrokerConfig, version: str | None = None, policy: Policy = Policy.KEEP) -> Said:
    """Ask all of them. Writes nothing. Raises Unreadable."""
    with noting():  # as every command that looks: bytes that no disk gives are gone around
        return _said_of(root, config, version, policy)


def _said_of(root: Path, config: BrokerConfig, version: str | None, policy: Policy) -> Said:
    layout = Layout.open(root, config)
    with StoreReader(root, config) as store:
        others = verify(store, Scope(groups=_OTHERS, broker_version=version), now_ms=NOW_MS)
    found, refused = None, ""
    try:
        found = recovery.analyze(layout, version, options=RecoveryOptions(policy, made_ms=NOW_MS))
        verdict = with_start(others, found)
        found = widened(found, verdict.findings)
        verdict = with_start(others, found)
    except StoreError as error:
        with StoreReader(root, config) as store:
            verdict = verify(store, Scope(broker_version=version), now_ms=NOW_MS)
        refused = str(error)
    texts = unrepairable_texts()
    beyond = frozenset(row.code for row in unrepairable_of(verdict, layout) if row.code in texts)
    return Said(root, verdict, _first_sight(layout), found, refused, beyond)


def _first_sight(layout: Layout) -> Status:
    """What `inspect` says; an error that ends it is no all-clear."""
    try:
        return at_first_sight(describe(layout)).status
    except StoreError:
        return Status.DAMAGED


def apply_recovery(said: Said, config: BrokerConfig) -> str:
    """Carry out what `recover` plans: the session, "" where there is nothing to do."""
    found = said.found
    assert found is not None and found.plan is not None
    if found.nothing_to_do:
        return ""
    again: Callable[[], Plan] = partial(
        _again, said.root, config, partial(replan_with_parts, version=found.main_version, options=found.options)
    )
    shown = None if found.interrupted else found.plan
    return apply(Layout.open(said.root, config), shown, again, Files()).session


def apply_repair(root: Path, config: BrokerConfig, version: str | None) -> tuple[Repair, str]:
    """Carry out `repair --all`: what was planned, and the session. Raises Refused, Unsupported."""
    found = repair.analyze(Layout.open(root, config), Choice(), version, NOW_MS)
    if found.nothing_to_do:
        return found, ""
    again: Callable[[], Plan] = partial(_again, root, config, partial(repair.replan, request=found.request))
    shown = None if found.interrupted else found.plan
    return found, apply(Layout.open(root, config), shown, again, Files(), command="repair").session


def _again(root: Path, config: BrokerConfig, plan: Callable[[Layout], Plan]) -> Plan:
    return plan(Layout.open(root, config))


def left_behind(after: Said, named: Iterable[str] = ()) -> Iterator[str]:
    """What a recovery or repair has left without a word: neither in order, nor with its reason. named: codes that the
    reader knows already.
    """
    if after.status is Status.UNCLEAN:
        yield f"not clean behind an --apply: {after}"
    if after.found is not None and after.found.plan is not None and not after.found.nothing_to_do:
        edits = after.found.plan.edits
        yield f"{after.status.value}, and still to do: {[(e.path, e.reason) for e in edits[:2]]}"
    unsaid = [code for code in after.codes if code not in after.beyond and code not in named]
    if unsaid:
        yield f"left without a reason: {', '.join(unsaid)}"
    timers = None if after.found is None else after.found.prediction.timers
    by_files = after.found is None or not (after.found.not_by_files or (timers is not None and not timers.in_files))
    if after.status is Status.DAMAGED and not after.codes and by_files and after.of_start != [UNREAD]:
        yield f"a start does harm still: {after}"


def fresh(path: Path) -> Path:
    """A path that nothing lies at."""
    shutil.rmtree(path, ignore_errors=True)
    return path
