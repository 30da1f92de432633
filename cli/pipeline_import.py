"""`mqstore pipeline import`: make a store from Parquet and Arrow files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from ..store.counted import counted
from ..store.errors import os_errors
from ..store.put.on_damage import CorruptedBodies, OnDamage
from .broker_version import AsBroker, warn_of_nearest_version
from .damage_option import OnDamageOption
from .declared import Argument, Exit, Option
from .exit_codes import ExitCode
from .options import Common, shared
from .pipeline_options import To, refused_lines


@shared()
def import_(
    files: Annotated[list[Path], Argument(metavar="FILE...", help="Parquet or Arrow files, or directories of them.")],
    *,
    to: To,
    as_broker: AsBroker = None,
    keep_times: Annotated[
        bool, Option("--keep-times/--new-times", help="Keep store_timestamp of the input, or take the current time.")
    ] = True,
    on_damage: OnDamageOption = OnDamage.FAIL,
    common: Common,
) -> None:
    """Make a store from messages in Parquet or Arrow files, as a broker would append them.

    The columns are those that mqstore export writes, with bodies; topic and body are required. Folders
    COLUMN=VALUE, as Hive and Spark write them, are read as columns. In a folder, other names that begin with _ or .
    are passed over, as by Spark, and named on stderr. Messages are appended in the order of store_timestamp and get
    new queue offsets; times finer than a millisecond lose the rest. A new DIR appears complete or not at all; in an
    existing empty DIR the parts of the store appear one by one. If the command is interrupted, run it again: it
    finishes or starts again. If the input files have changed since, the earlier run is finished, and exit code 5
    says so. The command runs in this process, without Spark: a log has one writer. To append to an existing store,
    use mqstore put STORE --from FOLDER.

    If there are timed messages, DIR is recovered as by recover --apply, which makes the files of the timer. A message
    at which a broker would end its log or stop delivering delayed messages is left out; stderr names up to 20 of them.
    Tombstones, which recover wrote in place of lost messages, are left out, too, and counted there.

    Exit code: 0 done; 1 a body failed its checksum, a message at which a broker would stop is left out, or verify does
    not call a DIR with timed messages safe; 2 a message that no broker takes; 4 another job works on DIR; 5 cannot be
    read or written.

    \b
    Examples:
      mqstore pipeline import /data/export --to /data/store
      mqstore pipeline import a.parquet b.parquet --to /data/store --as-broker 4.9 --new-times
    """
    from ..store.arrow import require_arrow

    require_arrow("no import")
    output = common.checked_output("import")
    warn_of_nearest_version(as_broker, common)
    for path in files:
        with os_errors(path):
            path.stat()
    from ..store.arrow.append_rows import NewStore, files_of, import_store, unread_folders
    from ..store.library import settle_timers
    from ..store.put.message_columns import left_out, new_times
    from ..store.salvage.original import left_at

    found = files_of(files, common.warn)
    for line in unread_folders(found):
        common.warn(line)
    how = NewStore(dict(common.config()), as_broker, keep_times, on_damage)
    with common.progress("importing", sum(path.stat().st_size for path in found)) as progress:
        finish = partial(settle_timers, config=how.broker_config, broker_version=as_broker)
        manifest = import_store(found, to, how, progress.advance, finish)
    corrupted = CorruptedBodies(on_damage, manifest["skipped"], manifest["marked"])
    remarks = [*corrupted.remarks(), *refused_lines(manifest)]
    if rows := manifest["left_out"]:
        remarks.append(f"{counted(rows, 'row')} left out: without a topic a row is no message")
    remarks += new_times(manifest.get("times_replaced", 0))
    left_of = [manifest.get(name, 0) for name in ("op_records", "pop_records", "tombstones")]
    for line in [*remarks, *left_out(*left_of)]:
        common.warn(line)
    left = manifest.get("left")
    if left:
        common.warn(f"{to}: {left_at(to, left, how.broker_config, as_broker)}")
    counts = {name: manifest[name] for name in ("messages", "left_out", "skipped", "marked")}
    counts |= {name: manifest.get(name, 0) for name in ("refused", "tombstones")}
    record = {"type": "import", "to": str(to), **counts}
    with output:
        output.record(record, text=lambda row: f"{row['to']}: {counted(row['messages'], 'message')}")
    if corrupted.met or counts["refused"] or left:
        raise Exit(ExitCode.NO)
