"""What proves the log of a store for the next start and a plan, in a pass that others make, too."""

from __future__ import annotations

from ..audit.prove import Light, Proof
from ..broker.profiles import Profile, profile_of
from ..broker.snapshot import Snapshot
from ..disk.layout import Layout
from ..index.compare import IndexFiles
from ..log.commit_log import CommitLog
from ..queues.units import NewQueues, QueueNumbers
from ..settings.generation import generation_of
from .log import Switches, as_configured, switches_of


def proof_of(layout: Layout, version: str | None) -> Proof | None:
    """What proves a part of the log, as `analyze` wants it proved; None where that would be of no use.

    version: the broker's, None: the guess. Raises Unreadable, Unsupported.
    """
    profile = profile_of(version or generation_of(layout).version)
    snapshot = Snapshot.of(layout)
    return proof_in(snapshot, as_configured(profile, layout.broker_config), switches_of(snapshot))


def proof_in(snapshot: Snapshot, profile: Profile, switches: Switches) -> Proof | None:
    """What proves a part of the log of a store; None where that would be of no use. Raises Unreadable."""
    if not snapshot.log or profile.record.dup_info:
        return None
    light = None
    if switches.multi_dispatch:
        rules = profile.dispatch
        levels = switches.delay_levels
        further = rules.how(items=False, lmq_zero=switches.lmq_zero, delay_levels=levels)
        light = Light(profile.version, further if rules.multi_dispatch else None)
    log, index = CommitLog.open(snapshot.layout), IndexFiles.of(snapshot)
    bare = not any(snapshot.queues.values()) and not snapshot.batch_topics
    queues = NewQueues() if bare else QueueNumbers.of(snapshot)
    making = switches.dispatching(profile.dispatch) if bare else None
    return Proof(log, queues, index, profile.dispatch.index_tags, light, making)
