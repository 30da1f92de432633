"""The verdict on a store for a command that plans a change of the store.

What `recover` finds out about the next start becomes part of the verdict and is not found out twice; what `verify`
finds in order in the log is not read again for the plan.

Modules for more than a first look at the store are imported after that first look.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ..disk.byte_reader import noting
from ..disk.workers import cores
from ..session.journal import Fingerprint
from ..settings.options import options_of

if TYPE_CHECKING:
    from ..disk.layout import Layout
    from ..recover.recovery import ProvedLog, Recovery
    from .verdict import Verdict


class JudgedRecovery(NamedTuple):
    """A store as `recover` sees it: the recovery, and the verdict with it."""

    recovery: Recovery
    verdict: Verdict


def verified_before(
    layout: Layout,
    version: str | None,
    *,
    anew: bool = False,
    jobs: int | None = None,
    tell: Callable[[int], None] | None = None,
) -> tuple[Verdict, ProvedLog | None]:
    """Verify a whole store except the next start; also return what `analyze` need not read after that.

    version: of the broker, None to guess. anew: for a repair: also the next start, and if there are no queues and no
    index, the units and items that the log asks for. tell: called with the log position reached. jobs: number of
    processes. Raise Unreadable.
    """
    seen, files = Fingerprint.of(layout), Fingerprint.now(layout)
    with noting():  # a first look at records, for an option that the pass uses: whether messages are in further queues
        _ = options_of(layout).multi_dispatch.value
    from ..search.store import StoreReader
    from .context import LogFacts, Scope
    from .run import verify

    scope = Scope(groups=None if anew else _groups_but_start(), broker_version=version, proof=True, anew=anew)
    with StoreReader(layout) as store:
        verdict = replace(verify(store, scope, jobs=jobs or cores(), progress=tell), facts=LogFacts())
    from ..recover.recovery import ProvedLog  # imports all of planning: only after the pass over the log

    verified = verdict.verified
    proved = ProvedLog(verified, seen, files, verdict.findings) if verified and files else None
    return verdict, proved


def with_start(verdict: Verdict, found: Recovery) -> Verdict:
    """Return the verdict of all other groups with what a start would do: nothing while somebody writes, as in `verify`.
    found: its plan may repair parts, too.
    """
    from ..findings.findings import order
    from .log_pass import not_asked_for
    from .start import findings_of_start
    from .verdict import status_of

    of_start = () if verdict.live else findings_of_start(found)
    findings = sorted([*verdict.findings, *of_start], key=order)
    unread = [text for text in verdict.unread if text not in not_asked_for(_groups_but_start())]
    shifted = tuple(map(str, found.plan.shifted)) if found.plan is not None and found.recovered else None
    return replace(
        verdict,
        status=status_of(findings),
        findings=findings,
        unread=unread,
        recovered=found.recovered,
        to_renumber=shifted,
    )


def _groups_but_start() -> frozenset[str]:
    from ..findings.catalogue import GROUPS
    from .start import GROUP

    return frozenset(GROUPS) - {GROUP}
