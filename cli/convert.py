"""`mqstore repair --convert`: a new store of another kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..store.counted import bytes_text, counted
from ..store.disk.files import Files
from ..store.disk.layout import Layout
from ..store.repair.convert import convert as make
from .broker_version import warn_of_nearest_version
from .declared import Exit, bad_parameter
from .exit_codes import ExitCode
from .options import Common
from .terminal import page_of

_ROWS = 10


def convert(store: Path, to: Path | None, version: str | None, common: Common) -> NoReturn:
    """Write the new store and print what was done. Raises Exit, and what `store.repair.convert` raises."""
    if to is None:
        raise bad_parameter("--convert needs --to DIR, a new directory")
    warn_of_nearest_version(version, common)
    out = common.checked_output("conversion")
    layout = Layout.open(store, common.config())
    total = layout.commit_log_files().size
    with common.progress("converting", total) as bar:
        done = make(layout, to, version, Files(), bar.advance)
    code = ExitCode.DONE if done.complete else ExitCode.NO
    out.note_done(f"the new store is complete: {to}")
    with out:
        out.record(done.to_json(), text=_text)
    raise Exit(code)


def _text(record: Mapping[str, Any]) -> str:
    records = counted(record["records"], "record", form=",")
    size, version = bytes_text(record["bytes"]), record["broker_version"]
    lines = [f"{records} ({size}) written to {record['to']}, a plain store for brokers {version}"]
    for name, what in (
        ("damaged", "damaged between good records, replaced by tombstones and fillers"),
        ("wrong", "with a wrong checksum, replaced by a tombstone"),
        ("torn", "with torn properties, some properties are lost"),
        ("restored", "with a header that contradicts its queue, corrected as `mqstore recover` does"),
        ("dead", "of an earlier life of the log, left out"),
    ):
        if record[name]:
            lines.append(f"  {record[name]:>9} {what}")
    lines += _only_in_database(record)
    if record["left"]:
        lines.append(f"Not complete: {record['left']}")
        return page_of(lines)
    changed = record["changed_queues"]
    gone = sum(not row["new_max_offset"] for row in changed)
    queues = record["queues"] + gone
    lines.append(f"  {queues - len(changed):>9} of {counted(queues, 'queue')} keep all their offsets")
    lines += [f"  {'':>9} {_queue(row)}" for row in changed[:_ROWS]]
    if len(changed) > _ROWS:
        lines.append(f"  {'':>9} … {len(changed) - _ROWS} more (--format json)")
    if record["left_behind"]:
        lines.append(f"Not copied: {', '.join(record['left_behind'])}")
    lines.append(
        "The old store is unchanged. Set in broker.conf: enableDLegerCommitLog=false, storePathRootDir, "
        "storePathCommitLog. Offset message ids have changed, because positions have."
    )
    return page_of(lines)


def _only_in_database(record: Mapping[str, Any]) -> Iterator[str]:
    if count := record["open_transactions"]:
        yield (
            f"  {counted(count, 'open transaction is', 'open transactions are')} unknown to brokers of the new store, "
            "which find them in rocksdbstore: it is not copied. Let brokers of the old store finish them first."
        )
    if count := record["delivered_again"]:
        yield (
            f"  {counted(count, 'timed message that was', 'timed messages that were')} delivered or cancelled will be "
            "delivered again, because rocksdbstore is not copied"
        )


def _queue(row: Mapping[str, Any]) -> str:
    name, old = f"{row['topic']}/{row['queue_id']}", f"{row['min_offset']} … {row['max_offset']}"
    return f"{name}: {old}, now {row['new_min_offset']} … {row['new_max_offset']}"
