"""`mqstore pipeline compact`: a store with the newest message of each key."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from ..store.counted import counted
from ..store.put.on_damage import CorruptedBodies, OnDamage
from .broker_version import AsBroker, warn_of_nearest_version
from .damage_option import OnDamageOption
from .declared import Exit, Option
from .exit_codes import ExitCode, exit_code_of
from .options import Common, say, shared
from .pipeline_options import Stores, To, damage_text, refused_lines
from .record_types import columns_of
from .terminal import page_of

_COUNTS = ("messages", "kept", "skipped", "marked", "refused", "damage")
_PASSES = 2
"""How many times a log is read."""


@shared()
def compact(
    stores: Stores,
    *,
    topic: Annotated[list[str], Option("--topic", "-t", metavar="T", help="Topics to compact; patterns are allowed.")],
    to: To,
    as_broker: AsBroker = None,
    on_damage: OnDamageOption = OnDamage.FAIL,
    common: Common,
) -> None:
    """Make a store with only the newest message of each key, for each STORE.

    Of the messages in a queue with the same KEYS only the last one in the log is kept, unless its body is empty: an
    empty body deletes the key. Messages without KEYS are dropped. These are the rules of a broker's compaction,
    applied to the whole commit log, including what a deleted and recreated topic has left there. The kept messages
    are appended in their order and get new queue offsets. Messages of a batch (queue.type BatchCQ) count one by
    one; each kept message becomes a record of its own. A batch that cannot be taken apart is reported as not read.

    DIR is a store; several stores get a folder each in DIR. A new DIR appears complete or not at all; in an
    existing empty DIR the parts appear one by one. If the command is interrupted, run it again: it finishes or
    starts again. A store that cannot be read is reported on stderr; the others are compacted. The command runs in
    this process, without Spark: the new log has one writer. If timed messages are kept, the new store is recovered
    as by recover --apply, which makes the files of the timer. A message at which a broker would end its log or stop
    delivering delayed messages is left out; stderr names up to 20 of them. If it is the newest of its key, no older
    message takes its place.

    Exit code: 0 done; 1 something could not be read (the rest is in DIR), a body failed its checksum, a message at
    which a broker would stop is left out, or verify does not call a new store with timed messages safe; 2 a message
    that no broker takes; 4 another job works on DIR; 5 a store cannot be read, DIR cannot be written.

    \b
    Examples:
      mqstore pipeline compact /data/store --topic prices --to /data/prices
      mqstore pipeline compact '/data/*/store' -t 'state-*' --to /data/states --as-broker 5.3
    """
    from ..store.arrow import require_arrow

    require_arrow("no compaction")
    output = common.checked_output("compact")
    from ..pipeline.plan import folders_of
    from ..store.arrow.append_rows import NewStore
    from ..store.arrow.compact import compact_stores
    from ..store.arrow.stores import as_path, log_sizes, stores_of
    from ..store.library import settle_timers
    from ..store.put.message_columns import new_times
    from ..store.salvage.original import left_at

    warn_of_nearest_version(as_broker, common)
    config, roots = common.config(), stores_of(stores)
    folders = dict(zip(roots, folders_of([as_path(root) for root in roots]), strict=True))
    sizes, unread = log_sizes(roots, config)
    for error in unread.values():
        if not sizes:
            raise error
        say(str(error))
    how = NewStore(dict(config), as_broker, keep_times=True, on_damage=on_damage)
    readable = {root: folders[root] for root in sizes}
    total = _PASSES * sum(sizes.values())
    with common.progress("compacting", total) as progress:
        finish = partial(settle_timers, config=how.broker_config, broker_version=as_broker)
        manifest = compact_stores(readable, topic, to, how, progress.advance, finish)
    rows = [_record(row, to) for row in manifest["stores"]]
    for row in manifest["stores"]:
        for lost in row["damage"]:
            common.warn(f"not read: {damage_text({'store': row['store'], **lost})}")
        corrupted = CorruptedBodies(on_damage, row["skipped"], row["marked"])
        for line in [*corrupted.remarks(), *refused_lines(row), *new_times(row.get("times_replaced", 0))]:
            common.warn(f"{row['store']}: {line}")
    left = {to / row["folder"]: row["left"] for row in manifest["stores"] if row.get("left")}
    for made, what in left.items():
        common.warn(f"{made}: {left_at(made, what, how.broker_config, as_broker)}")
    with output:
        output.records(iter(rows), text=_text, columns=columns_of("compact"))
    if unread:
        raise Exit(max(map(exit_code_of, unread.values())))
    if left or any(row["damage"] or row["skipped"] or row["marked"] or row["refused"] for row in rows):
        raise Exit(ExitCode.NO)


def _record(row: Mapping[str, Any], to: Path) -> dict[str, Any]:
    counts = {name: row.get(name, 0) for name in _COUNTS}
    return {"type": "compact", "store": row["store"], "to": str(to / row["folder"]), **counts}


def _text(row: Mapping[str, Any]) -> str:
    return page_of([f"{row['to']}: {row['kept']} of {counted(row['messages'], 'message')} of {row['store']}"])
