"""`mqstore pipeline compact`: the newest message of each key as a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from ..store.counted import counted
from ..store.put.on_damage import CorruptedBodies, OnDamage
from .broker_version import AsBroker, tell_nearest
from .damage_option import OnDamageOption
from .declared import Exit, Option
from .exit_codes import ExitCode, exit_code_of
from .options import Common, say, shared
from .pipeline_options import Stores, To, damage_text
from .terminal import page_of

_COUNTS = ("messages", "kept", "skipped", "marked", "damage")
_COLUMNS = ("type", "store", "to", *_COUNTS)
_PASSES = 2
"""A log is read so many times."""


@shared()
def compact(
    stores: Stores,
    *,
    topic: Annotated[list[str], Option("--topic", "-t", metavar="T", help="Topics to compact; patterns count.")],
    to: To,
    as_broker: AsBroker = None,
    on_damage: OnDamageOption = OnDamage.FAIL,
    common: Common,
) -> None:
    """Make a store of the newest message of each key, of each of some stores.

    Of the messages of a queue that have the same KEYS the last one in the log stays, unless its body is
    empty: that deletes the key. Messages without KEYS go. It is the rule of a broker's compaction, over
    the whole commit log, with what a topic that was deleted and made again has left there; what stays
    is appended again, in its order, and gets new queue offsets.
    Messages of a batch (queue.type BatchCQ) count one by one, and each that stays becomes a record of
    its own. A batch that cannot be taken apart is reported as not read.

    DIR is a store; of several stores each has a folder of its own in it. A DIR that is not there
    appears whole or not at all, in an empty one its parts come one by one. What was cut off is finished,
    or begun again, by running the same command once more. A store that cannot be
    read is reported on stderr, and the others are compacted. It runs in this process: the new log has
    one writer.

    Exit code: 0 done; 1 something could not be read, the rest is there; or a body failed its checksum;
    4 another job works on DIR; 5 a store cannot be read, DIR cannot be written.

    \b
    Examples:
      mqstore pipeline compact /data/store --topic prices --to /data/prices
      mqstore pipeline compact '/data/*/store' -t 'state-*' --to /data/states --as-broker 5.3
    """
    from ..store.arrow import require_arrow

    require_arrow("no compaction")
    output = common.open_output()
    output.check(_COLUMNS)
    from ..pipeline.plan import folders_of
    from ..store.arrow.append_rows import NewStore
    from ..store.arrow.compact import compact_stores
    from ..store.arrow.stores import as_path, log_sizes, stores_of
    from ..store.disk.byte_reader import at_rate

    tell_nearest(as_broker, common)
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
    with at_rate(common.rate), common.progress("compacting", total) as progress:
        manifest = compact_stores(readable, topic, to, how, progress.advance)
    rows = [_record(row, to) for row in manifest["stores"]]
    for row in rows:
        for lost in row["damage"]:
            common.warn(f"not read: {damage_text({'store': row['store'], **lost})}")
        for line in CorruptedBodies(on_damage, row["skipped"], row["marked"]).remarks():
            common.warn(f"{row['store']}: {line}")
    with output:
        output.records(iter(rows), text=_text, columns=_COLUMNS)
    if unread:
        raise Exit(max(map(exit_code_of, unread.values())))
    if any(row["damage"] or row["skipped"] or row["marked"] for row in rows):
        raise Exit(ExitCode.NO)


def _record(row: Mapping[str, Any], to: Path) -> dict[str, Any]:
    counts = {name: row[name] for name in _COUNTS}
    return {"type": "compact", "store": row["store"], "to": str(to / row["folder"]), **counts}


def _text(row: Mapping[str, Any]) -> str:
    return page_of([f"{row['to']}: {row['kept']} of {counted(row['messages'], 'message')} of {row['store']}"])
