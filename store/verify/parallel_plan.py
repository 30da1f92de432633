"""The verdict on a store for a command that plans a change of it.

What `recover` has found out about the next start is part of the verdict and not found out twice; what
`verify` has found in order in the log is not read again for the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..disk.workers import beside, cores
from ..recover.recovery import Proved
from ..search.store import Store
from ..session.fingerprint import Fingerprint
from .catalogue import GROUPS
from .context import LogFacts, Scope
from .findings import order
from .log_pass import not_asked_for
from .run import verify
from .start import GROUP, findings_of_start, worth_a_process
from .verdict import Verdict, status_of

if TYPE_CHECKING:
    from ..disk.layout import Layout
    from ..recover.recovery import Recovery

_OTHERS = frozenset(GROUPS) - {GROUP}


class Judged(NamedTuple):
    """A store as `recover` sees it: the plan, and the verdict that this is part of."""

    recovery: Recovery
    verdict: Verdict


@contextmanager
def verified_beside(
    layout: Layout, version: str | None, *, rate_bytes: int | None = None
) -> Iterator[Callable[[], Verdict]]:
    """`verify` of a whole store in another process from now on; what it gives waits for the verdict.

    version: the broker's, None: the guess. Raises Unreadable.
    """
    work = partial(_verified, layout, Scope(broker_version=version), rate_bytes)
    with beside(work, worth=worth_a_process(layout)) as verdict:
        yield verdict


def verified_before(
    layout: Layout,
    version: str | None,
    *,
    rate_bytes: int | None = None,
    jobs: int | None = None,
    tell: Callable[[int], None] | None = None,
) -> tuple[Verdict, Proved | None]:
    """`verify` of a whole store but for the next start, and what `examine` need not read for that.

    version: the broker's, None: the guess. tell: called with the log position reached. jobs: processes.
    Raises Unreadable.
    """
    seen, files = Fingerprint.of(layout), Fingerprint.now(layout)
    scope = Scope(groups=_OTHERS, broker_version=version, proof=True)
    verdict = _verified(layout, scope, rate_bytes, jobs or cores(), tell)
    proved = Proved(verdict.sound, seen, files) if verdict.sound and files else None
    return replace(verdict, sound=None), proved


def _verified(
    layout: Layout,
    scope: Scope,
    rate_bytes: int | None,
    jobs: int = 1,
    tell: Callable[[int], None] | None = None,
) -> Verdict:
    """The verdict, without what only a run that goes on needs."""
    with Store(layout.root, layout.broker_config, rate_bytes=rate_bytes) as store:
        return replace(verify(store, scope, jobs=jobs, progress=tell), facts=LogFacts())


def with_start(verdict: Verdict, found: Recovery) -> Verdict:
    """The verdict of all other groups, with what a start would do."""
    findings = sorted([*verdict.findings, *findings_of_start(found)], key=order)
    unread = [text for text in verdict.unread if text not in not_asked_for(_OTHERS)]
    return replace(verdict, status=status_of(findings), findings=findings, unread=unread)
