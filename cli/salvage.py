"""`mqstore salvage`: find messages in any bytes, and make a new store of them."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .broker_version import BrokerVersion, warn_of_nearest_version
from .declared import Argument, Exit, Option, Options, bad_parameter, option
from .exit_codes import ExitCode
from .options import FOUND, Common, shared
from .terminal import page_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..store.salvage.salvage import Salvaged, SalvageRequest, SalvageSelection, Told


LayoutChoice = StrEnum("LayoutChoice", "ORIGINAL COMPACT")
"""The layouts of `store.salvage`, repeated here so that `--help` does not import it."""


GradeName = StrEnum("GradeName", "WHOLE BODY")
"""The lowest grade of the records that a new store gets."""


class SalvageOptions(Options):
    topic: list[str] | None = option(
        "--topic", "-t", metavar="T", help="Only these topics; patterns are allowed (with --layout compact)."
    )
    since: str | None = option("--since", metavar="TIME", help="Stored at TIME or later (with --layout compact).")
    until: str | None = option("--until", metavar="TIME", help="Stored before TIME (with --layout compact).")

    def selection(self) -> SalvageSelection:
        """The options as a selection. Raises InvalidInput."""
        from ..store.salvage.salvage import SalvageSelection
        from ..store.search.selection import parse_range

        return SalvageSelection(frozenset(self.topic or ()), parse_range(self.since, self.until))


@shared(unread=FOUND)
def salvage(
    images: Annotated[list[Path], Argument(metavar="IMAGE...", help="Files, directories, block devices.")],
    to: Annotated[
        Path | None, Option("--to", metavar="DIR", help="The new store: a new or an empty directory.")
    ] = None,
    layout: Annotated[
        LayoutChoice,
        Option(
            "--layout",
            help="original: every record at its own position, holes closed; compact: new positions and queue offsets.",
        ),
    ] = LayoutChoice.ORIGINAL,
    grade: Annotated[
        GradeName,
        Option(
            "--grade",
            help="Which records the new store gets. whole: fully proven ones; body: also those with torn properties.",
        ),
    ] = GradeName.BODY,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what was found. Writes nothing.")] = False,
    *,
    limits: SalvageOptions,
    broker_version: BrokerVersion = None,
    common: Common,
) -> None:
    """Carve messages out of anything: damaged segments, disk images, devices, core dumps.

    File names and file systems do not matter: a record is found by its magic code, and proven by its own lengths
    and checksums. Identical copies of a record count once. If two different records claim the same place, both are
    kept, the second in DIR/conflicts; of two DLedger entries this is the one of the earlier leader. A record header
    without its body is listed; nothing is guessed. DIR/manifest.ndjson says for each record where it came from and
    what is proven. Images are only read. If an image is a device, DIR must be on another disk. Links in a directory
    are followed; a broken link is named on stderr.

    DIR gets one log, with either layout. A store and its replica have the same records at the same places and can be
    named together. The logs of other brokers claim the same places for other records: they would be mixed, and the
    rest would be in conflicts. To put the messages of two brokers into one store, salvage each broker into a directory
    of its own with --layout compact. Then append the second store to the first, as in the last example.

    With --layout compact, records that decide a transaction point to the new places of their half messages. They are
    left out if their half messages were not found; so are POP check points and acknowledgements that point to other
    places, and tombstones, which recover wrote in place of lost messages. A message that brokers refuse is put into
    DIR/conflicts/refused, and the manifest says why. Names in INNER_MULTI_DISPATCH at which brokers stop dispatching
    are left out. A DELAY that is not a number becomes the delay level of the queue.

    If exactly one IMAGE is the directory of a store, --layout original also takes its file sizes, and copies its
    config (positions, delay progress, groups, topic settings), compaction topics and timer as far as they can be
    read. Otherwise a line says what is not restored, and topics get default settings.

    rocksdbstore is not restored. With transRocksDBEnable brokers find open transactions in it: copy it from the old
    store, unless DIR is renumbered. Nor are epochFileCheckpoint and brokerIdentity of a broker with a controller: copy
    them from the old store, too. A slave without epochs compares nothing with its master's log.

    DIR is recovered as by recover --apply. Exit code: 0 every record found is whole and in DIR; 1 no record was found,
    some are damaged, split, refused or in conflict, a file of config or timer could not be copied, no broker will ask
    for open transactions in DIR, or verify does not call DIR safe; 5 cannot read or write.

    \b
    Examples:
      mqstore salvage /dev/sdb1 --dry-run
      mqstore salvage disk.img --to /data/restored
      mqstore salvage core.4711 /old/commitlog --to /data/restored --layout compact
      mqstore salvage disk.img --to /data/restored --layout compact --topic orders --since -2d
      mqstore dump /data/second --format ndjson | mqstore put /data/restored --from - --keep-times
    """
    if (to is None) == (not dry_run):
        raise bad_parameter("--to DIR or --dry-run is needed")
    limited = limits != SalvageOptions()
    if limited and layout is LayoutChoice.ORIGINAL:
        raise bad_parameter("--topic, --since and --until need --layout compact")
    from ..store.salvage.runs import Grade
    from ..store.salvage.salvage import LayoutKind, SalvageRequest

    warn_of_nearest_version(broker_version, common)
    selection, config = limits.selection(), common.config()
    wanted = SalvageRequest(LayoutKind(layout.value), Grade[grade.name], selection, broker_version, config)
    out = common.checked_output("salvage")
    done = _salvage(images, to, wanted, common)
    out.note_done(f"the new store is complete: {to}")
    with out:
        out.record(_json(done, images, to, layout), text=_text)
    raise Exit(ExitCode.DONE if done.complete else ExitCode.NO)


def _salvage(images: list[Path], to: Path | None, wanted: SalvageRequest, common: Common) -> Salvaged:
    from ..store.counted import counted
    from ..store.disk.files import Files
    from ..store.errors import Missing
    from ..store.salvage.runs import SalvageSource, images_of
    from ..store.salvage.salvage import LayoutKind, check_target, look, open_if_written, write

    found = images_of(images, common.warn)
    if to is not None:
        check_target(found, to, wanted)
    total = 0
    for path in found.files:
        with suppress(Missing):  # a running broker may have deleted it
            source = SalvageSource(path)
            total += source.size
            source.close()
    with common.progress("searching", total) as bar:
        done = look(images, found.files, wanted, _teller(bar.advance))
    with ExitStack() as stack:
        stack.enter_context(done.sources)
        if to is not None:
            size = sum(run.length for run in done.log.runs)
            bar = stack.enter_context(common.progress("writing", size))
            write(done, to, wanted, Files(), _teller(bar.advance))
        else:
            done.open_transactions = open_if_written(done, wanted)
    if gone := [done.sources.paths[number] for number in sorted(done.sources.expired)]:
        files = counted(len(gone), "file")
        common.warn(
            f"the broker deleted {files} during this command; records that are only there are left out: {gone[0]}"
        )
    if to is not None and done.has_log:
        done.left = _settle(to, wanted, common)
        roots = (root for path in images for root in (path, path.parent))
        if wanted.layout is LayoutKind.ORIGINAL and any(map(wanted.config.has_controller, roots)):
            common.warn(
                "epochFileCheckpoint is not restored: copy the old store's, as a slave without epochs compares nothing"
                " with its master's log"
            )
    return done


def _settle(to: Path, wanted: SalvageRequest, common: Common) -> str:
    """Recover the new store if necessary. Return what is left to do, "" if `verify` calls the store safe."""
    from ..store.disk.layout import Layout
    from ..store.library import left_to_do, recover_new_store
    from ..store.salvage.original import left_at

    layout = Layout.open(to, wanted.config.for_new_store())
    with common.reading("reading the log", layout.commit_log_files()) as tell:
        left = left_to_do(recover_new_store(layout, wanted.version, tell=tell))
    return left_at(to, left, layout.broker_config, wanted.version)


def _teller(advance: Any) -> Told:
    return lambda _step, size: advance(size)


def _json(done: Salvaged, images: list[Path], to: Path | None, layout: LayoutChoice) -> dict[str, Any]:
    found = done.found
    record: dict[str, Any] = {
        "type": "salvage",
        "sources": [str(path) for path in images],
        "to": None if to is None else str(to),
        "layout": layout.value,
        "bytes": found.bytes,
        "unreadable_bytes": done.unreadable,
        "records": sum(done.grades.values()),
        **done.grades,
        "in_log": done.log.records,
        "duplicates": sum(run.records for run in done.arranged.duplicates),
        "aside": sum(layer.records for layer in done.aside),
        "joined": found.joined,
        "split": found.split,
        "embedded": found.embedded,
        "log_start": done.log.runs[0].position if done.log.runs else None,
        "log_end": done.log.runs[-1].end if done.log.runs else None,
        "file_bytes": done.file_bytes,
    }
    if done.restored is not None:
        record |= {name: getattr(done.restored, name) for name in _OF_RESTORED}
    if done.written is not None:
        record |= {name: getattr(done.written, name) for name in _OF_WRITTEN}
    if to is not None:
        record |= {"left": done.left, "brought": done.brought, "not_brought": done.left_out}
        stores = () if done.brought or done.left_out else done.stores
        record["not_restored"] = [str(old.root) for old in stores if old.config.is_dir()]
    return record | {"open_transactions": done.open_transactions}


_OF_RESTORED = ("tombstones", "fillers", "unplaced", "version")
_OF_WRITTEN = ("stored", "left_out", "refused", "op_records", "pop_records", "tombstones")


def _text(record: Mapping[str, Any]) -> str:
    from ..store.counted import bytes_text, counted

    read = bytes_text(record["bytes"])
    lines = [f"{counted(record['records'], 'record')} in {read}: {record['whole']} whole"]
    for name, what in (
        ("body", "with torn properties"),
        ("structure", "with a damaged body"),
        ("joined", "of them read from separate blocks"),
        ("duplicates", "found twice"),
        ("aside", "outside the log, in conflicts"),
        ("split", "cut off: a record header without its body"),
        ("embedded", "inside a damaged record"),
    ):
        if record[name]:
            lines.append(f"  {record[name]:>9} {what}")
    if record["unreadable_bytes"]:
        lines.append(f"  {bytes_text(record['unreadable_bytes'])} could not be read")
    lines.append(f"  {record['in_log']:>9} for the log, from {record['log_start']} to {record['log_end']}")
    if record["aside"] > record["structure"] and len(record["sources"]) > 1:
        lines.append(
            "  If the images are of several brokers, the log mixes them: salvage each broker by itself (see --help)"
        )
    if record["to"] is not None:
        lines += _made(record)
    if record["open_transactions"]:
        count = counted(record["open_transactions"], "open transaction is", "open transactions are")
        lines.append(f"  {count} unknown to brokers, which find them in rocksdbstore: it is not restored")
    return page_of(lines)


def _made(record: Mapping[str, Any]) -> list[str]:
    from ..store.counted import counted
    from ..store.put.message_columns import left_out

    lines = [f"Written: {record['to']}, {record['layout']}; manifest.ndjson lists each record."]
    if record["layout"] == "compact":
        lines.append(f"  {counted(record['stored'], 'message')} stored")
        told = [record[name] for name in ("op_records", "pop_records", "tombstones")]
        others = record["left_out"] - sum(told)
        refused = "refused, in conflicts/refused; the manifest says why"
        for count, what in ((others, "not selected"), (record["refused"], refused)):
            if count:
                lines.append(f"  {count} {what}")
        lines += (f"  {line}" for line in left_out(*told))
    elif record.get("tombstones") or record.get("fillers"):
        lines.append(
            f"  holes closed with {counted(record['tombstones'], 'tombstone')} and"
            f" {counted(record['fillers'], 'filler')}"
        )
    if record.get("unplaced"):
        missing = counted(record["unplaced"], "queue offset is", "queue offsets are")
        lines.append(
            f"  {missing} missing, and there is no room for a tombstone: consumers get a neighbouring message twice"
        )
    lines += _along(record)
    if record["left"]:
        lines.append(f"  incomplete: {record['left']}")
    return lines


def _along(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield what came along from a store beside its messages, and what did not."""
    from collections import Counter

    from ..store.counted import counted

    if record["brought"]:
        parts = Counter(path.partition("/")[0] for path in record["brought"])
        files = ", ".join(f"{part} ({counted(count, 'file')})" for part, count in parts.items())
        yield f"  copied from the store: {files}"
    if record["not_brought"]:
        why = "not readable, or RocksDBs, which brokers with queues in files do not read:"
        why += " mqstore repair --queues --as files of the old store makes files of them"
        yield f"  not restored from the store ({why}): {', '.join(record['not_brought'])}"
    if "config" in {path.partition("/")[0] for path in (*record["brought"], *record["not_brought"])}:
        return
    stores = record["not_restored"]
    why = "all queue offsets are new"
    if record["layout"] == "original":
        several = counted(len(stores), "store is named", "stores are named")
        why = f"{several}; name one, or copy its config/ into {record['to']}"
        why = why if stores else f"no IMAGE is a store with config/; copy that of the old store into {record['to']}"
    folders = stores and f" of {', '.join(f'{root}/config' for root in stores)}"
    yield f"  not restored: positions, delay progress, groups and topic settings{folders or ''} ({why})"
