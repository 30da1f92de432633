"""Modes of a broker that were not run: what a start does in them, by the source alone.

`duplicationEnable` and `enableControllerMode` change the check of a record and what is dispatched
after a crash (spec 7.2 row 5, 7.4, 7.5). Both are fields of a profile, so that the algorithm knows
no mode; all that rests on them is told with the words "by source".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..broker.profiles import Profile, profile_of
from ..disk.broker_conf import BrokerConfig
from ..disk.layout import Layout
from ..disk.snapshot import Snapshot
from .log import Records

_DUPLICATION, _CONTROLLER = "duplicationEnable", "enableControllerMode"


def as_configured(profile: Profile, config: BrokerConfig) -> Profile:
    """The generation as it starts in the modes of a configuration. Raises InvalidInput."""
    if not (config.get_bool(_DUPLICATION) and profile.queues.has_confirm_offset):
        return profile
    return replace(
        profile,
        record=replace(profile.record, dup_info=True),
        dispatch=replace(profile.dispatch, confirmed_only=True),
    )


def confirmed(snapshot: Snapshot, profile: Profile, batch: Records) -> Records:
    """The records of a batch that a recovery after a crash dispatches."""
    if not profile.dispatch.confirmed_only:
        return batch
    columns = batch.columns
    ends = columns.ints("physical_offset") + columns.ints("total_size")
    held = ends <= snapshot.checkpoint["confirm_phy_offset"]
    return batch._replace(columns=columns.take(held))


def by_source(layout: Layout, version: str) -> Iterator[str]:
    """What a prediction for a generation rests on besides what was measured. Raises InvalidInput."""
    config, rules = layout.broker_config, profile_of(version)
    knows_confirmed = rules.queues.has_confirm_offset
    if config.get_bool(_DUPLICATION) and knows_confirmed:
        yield (
            f"{_DUPLICATION}: a record without DUP_INFO of two parts ends the log, and"
            " after a crash only what the checkpoint's confirmPhyOffset covers gets units"
        )
    elif config.get_bool(_DUPLICATION):
        yield (
            f"{_DUPLICATION}: nothing is dispatched behind the confirmed offset, which no"
            " file of this version has: what it hides is not predicted"
        )
    if config.get_bool(_CONTROLLER) and knows_confirmed:
        yield (
            f"{_CONTROLLER}: after a crash what lies behind confirmPhyOffset gets its"
            " units once the controller has confirmed it; predicted as if it had"
        )
