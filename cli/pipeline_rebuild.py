"""`mqstore pipeline rebuild`: rebuild from commit logs everything that is derived from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.counted import counted, listed
from ..store.errors import Missing
from .broker_version import BrokerVersion, warn_of_nearest_version
from .declared import Exit
from .exit_codes import ExitCode
from .options import Common, say, shared
from .pipeline_options import LocalStores, Spark, To, showing
from .terminal import page_of
from .unread import retry_without_lost

if TYPE_CHECKING:
    from ..pipeline.plan import JobPlan
    from ..store.errors import StoreError
    from ..store.findings.next_commands import Given

_SHOWN = 12
"""Queues of a store that one line names."""


@shared()
def rebuild(stores: LocalStores, *, to: To, spark: Spark, broker_version: BrokerVersion = None, common: Common) -> None:
    """Rebuild queues, index, timer wheel and checkpoint from the commit log.

    DIR is laid out as a store without a log: consumequeue, batchconsumequeue, consumequeue_ext, index, checkpoint,
    and timerwheel if there is a timer log, byte by byte as the broker would write them. A queue offset whose record
    is lost gets the unit before it. If more offsets are missing between two records than the log has room for (a
    damaged number, for example), files for these offsets alone are not made; stderr says how many offsets are left
    out. The timer log, which the wheel points into, and config are not copied.

    Queues without any message in the log are not made; stderr names them. Keep the store's own files for them:
    without these such a queue starts at 0 again.

    Several stores get a folder each in DIR, and a line each in the answer. A log of 64 MiB or less is one task;
    small logs share a Spark task, large ones start first; a larger log is read in parts, one task each. A new DIR
    appears complete or not at all; in an existing empty DIR the parts appear one by one. If the command is
    interrupted, run it again: it finishes or starts again. If a log has grown since, the earlier run is finished,
    and exit code 5 says so.

    Exit code: 0 complete; 1 records are lost in damage, queue offsets are missing or repeated, or a queue is not
    made; 4 another job works on DIR; 5 cannot be read or written, no Spark. Of several stores, one that cannot be
    read is reported on stderr; the others are rebuilt.

    \b
    Examples:
      mqstore pipeline rebuild /data/store --to /data/rebuilt
      mqstore pipeline rebuild /data/a /data/b --to /mnt/queues --master spark://host:7077
      mqstore pipeline rebuild @stores.txt --to /mnt/queues --conf spark.driver.memory=4g
    """
    master, settings = spark.place(common)
    output = common.checked_output("rebuild")
    warn_of_nearest_version(broker_version, common)
    from ..pipeline.plan import plan_of
    from ..pipeline.rebuild import on_spark
    from ..pipeline.rebuild import rebuild as run
    from ..store.arrow.stores import stores_of

    roots = [Path(root) for root in stores_of(stores)]
    unreadable: dict[str, str] = {}

    def tell_of(root: Path, error: StoreError) -> None:
        if str(root) not in unreadable:
            say(str(error))
        unreadable[str(root)] = str(error)

    def planned() -> JobPlan:
        return plan_of(roots, common.config(), broker_version, tell_of)

    def rest(before: JobPlan, _: StoreError) -> JobPlan | None:
        now = planned()
        return now if len(now.stores) < len(before.stores) else None

    def job(plan: JobPlan) -> dict[str, Any]:
        common.explain(f"starting Spark on {master}")
        total_bytes = sum(store.bytes for store in plan.stores)
        with showing("rebuilding", total_bytes, None, common, in_bytes=True) as tell:
            return run(plan, to, on_spark(master, settings, tell))

    plan = planned()
    for store in plan.stores:
        common.explain(
            f"{store.root}: log {store.start} to {store.stop},"
            f" {counted(store.units_per_file, 'unit')} in a"
            f" file, rules of broker {store.broker_version}"
        )
    plan, manifest = retry_without_lost(job, plan, rest)
    report = report_of(plan, to, manifest, unreadable)
    for line in [*losses_of(report), *first_steps(report, common.given(broker_version))]:
        common.warn(line)
    with output:
        output.record(report, text=_text)
    if unreadable:
        raise Exit(ExitCode.FAILED)
    if report["status"] != "complete":
        raise Exit(ExitCode.NO)


def report_of(plan: JobPlan, to: Path, manifest: Mapping[str, Any], unreadable: Mapping[str, str]) -> dict[str, Any]:
    """The answer of `rebuild`: counts, stores, queues, index files, damaged ranges.

    unreadable: store → why it could not be read.
    """
    roots = [store.root for store in plan.stores]
    queues = [{**queue, "store": roots[queue["store"]]} for queue in manifest["queues"]]
    damage = [{**row, "store": roots[row["store"]]} for row in manifest["damage"]]
    index = [{**file, "store": roots[file["store"]]} for file in manifest["index"]]
    left_out = _left_out(plan, manifest["queues"])
    sums = {name: sum(queue[name] for queue in queues) for name in ("files", "units", "missing", "duplicates")}
    whole = not (unreadable or damage or left_out or sums["missing"] or sums["duplicates"])
    return {
        "type": "rebuild",
        "status": "complete" if whole else "incomplete",
        "to": str(to),
        **sums,
        "stores": [
            {
                "store": store.root,
                "folder": store.folder,
                "log_start": store.start,
                "log_end": store.stop,
                "broker_version": store.broker_version,
                "singles": manifest["singles"][number],
            }
            for number, store in enumerate(plan.stores)
        ],
        "queues": queues,
        "left_out": left_out,
        "index": index,
        "damage": damage,
        "unreadable": [{"store": root, "problem": why} for root, why in unreadable.items()],
    }


def _left_out(plan: JobPlan, made: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Queues that stores have and that were not rebuilt. Raises Unreadable."""
    found: list[dict[str, Any]] = []
    there: dict[int, set[tuple[str, int]]] = {number: set() for number in range(len(plan.stores))}
    for queue in made:
        there[queue["store"]].add((queue["topic"], queue["queue_id"]))
    for number, store in enumerate(plan.stores):
        with suppress(Missing):  # the store is gone: the new files replace nothing
            found += [
                {"store": store.root, "topic": topic, "queue_id": queue_id, "max_offset": end}
                for topic, queue_id, end in store.left_out(there[number])
            ]
    return found


def losses_of(report: Mapping[str, Any]) -> list[str]:
    lines = [
        f"damage in the log; no queue names its records: {row['store']} at {row['position']},"
        f" {counted(row['size'], 'byte')} ({row['reason']})"
        for row in report["damage"]
    ]
    for queue in report["queues"]:
        name = f"{queue['store']}: {queue['topic']}/{queue['queue_id']}"
        if queue["missing"]:
            have = counted(queue["missing"], "queue offset has", "queue offsets have")
            lines.append(
                f"{name}: {have} no record; the unit before takes their place, so its message is delivered twice"
            )
        if queue.get("without_unit"):  # missing in a manifest that an older version wrote
            have = counted(queue["without_unit"], "of these has", "of these have")
            lines.append(f"{name}: {have} no unit: the log has no room for so many records; their files are not made")
        if queue["duplicates"]:
            repeat = counted(queue["duplicates"], "record repeats", "records repeat")
            lines.append(f"{name}: {repeat} a queue offset, left out")
    for store, rows in groupby(report["left_out"], itemgetter("store")):
        ends = [f"{queue['topic']}/{queue['queue_id']} (ends at {queue['max_offset']})" for queue in rows]
        are, why = counted(len(ends), "queue is", "queues are"), "because the log has no message of them"
        lines.append(f"{store}: {are} not made, {why}: {listed(ends, _SHOWN)}; keep the store's own files")
    return lines


def first_steps(report: Mapping[str, Any], given: Given) -> list[str]:
    """Lines about what to do before any new file replaces one of a store."""
    from ..store.findings.next_commands import command

    damaged = {row["store"] for row in report["damage"]}
    lost = dict.fromkeys(queue["store"] for queue in report["queues"] if queue["missing"])
    return [
        f"{store}: keep its queues: they show what was lost. First run:"
        f" {command('recover', store, '--apply', given=given)}, then run this command again"
        for store in lost
        if store in damaged
    ]


def _text(report: Mapping[str, Any]) -> str:
    """A line for each store if there are several, then the sum."""
    lines = []
    if len(report["stores"]) > 1:
        for store in report["stores"]:
            rows = {
                name: [row for row in report[name] if row["store"] == store["store"]]
                for name in ("queues", "index", "damage", "left_out")
            }
            lost = rows["damage"] or rows["left_out"] or any(q["missing"] or q["duplicates"] for q in rows["queues"])
            lines.append(_line(store["store"], rows, "incomplete" if lost else "complete"))
    return page_of([*lines, _line(report["to"], report, report["status"])])


def _line(name: str, report: Mapping[str, Any], status: str) -> str:
    """What was made. report: has `queues` and `index`."""
    things = (
        (len(report["queues"]), "queue"),
        (sum(queue["files"] for queue in report["queues"]), "file"),
        (sum(queue["units"] for queue in report["queues"]), "unit"),
        (len(report["index"]), "index file"),
        (sum(file["items"] for file in report["index"]), "item"),
    )
    counts = ", ".join(counted(count, thing) for count, thing in things)
    return f"{name}: {counts}, {status}"
