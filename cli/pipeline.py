"""`mqstore pipeline`: work over many and large stores, on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .exit_codes import ExitCode
from .options import Common, command_app, shared

if TYPE_CHECKING:
    from ..pipeline.plan import Plan

app = command_app(
    help="""Work on many and large stores with Spark.

    Spark runs inside this process unless --master names a cluster. It needs the extra `spark`
    (pip install 'mqstore[spark]'), which brings a Java where there is none.
    """
)


@app.callback()
def _group() -> None:
    """Keeps `rebuild` a word of the command line, though it is the only one."""


@app.command()
@shared()
def rebuild(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Store directories.")],
    *,
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="New directory, laid out as a store.")
    ],
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="spark://…, yarn, k8s://…, local[N]. Default: inside this process, on --jobs cores.",
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; wins over ours."),
    ] = None,
    broker_version: Annotated[
        str | None,
        typer.Option("--broker-version", metavar="V", help="Whose rules hold; default: a guess."),
    ] = None,
    common: Common,
) -> None:
    """Rebuild consume queues from the commit log.

    DIR gets consumequeue/TOPIC/QUEUE/… as the broker would write them; of several stores each has
    a folder of its own in DIR. It appears whole or not at all: what was cut off is finished, or
    started anew, by running the same command again.

    \b
    Examples:
      mqstore pipeline rebuild /data/store --to /data/rebuilt
      mqstore pipeline rebuild /data/a /data/b --to /mnt/queues --master spark://host:7077
    """
    from ..pipeline.plan import plan_of
    from ..pipeline.rebuild import on_spark
    from ..pipeline.rebuild import rebuild as run
    from ..pipeline.session import require_packages

    if common.rate is not None:
        raise typer.BadParameter("a Spark job has no limit of reading", param_hint="--rate")
    require_packages()
    master = master or f"local[{common.jobs or '*'}]"
    plan = plan_of(stores, common.config(), broker_version)
    for store in plan.stores:
        common.explain(
            f"{store.root}: log {store.start} to {store.stop}, {store.units_per_file} units in a"
            f" file, rules of broker {store.broker_version}"
        )
    common.explain(f"starting Spark on {master}")
    report = report_of(plan, to, run(plan, to, on_spark(master, _settings(conf))))
    for line in losses_of(report):
        common.warn(line)
    with common.open_output() as output:
        output.record(report, text=_text)
    if report["status"] != "complete":
        raise typer.Exit(ExitCode.NO)


def _settings(conf: list[str] | None) -> dict[str, str]:
    """Spark's settings from `KEY=VALUE`, the last of a key wins."""
    settings = {}
    for text in conf or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"not KEY=VALUE: {text}", param_hint="--conf")
        settings[key] = value
    return settings


def report_of(plan: Plan, to: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `rebuild`: counts, stores, queues, damaged ranges."""
    roots = [store.root for store in plan.stores]
    queues = [{**queue, "store": roots[queue["store"]]} for queue in manifest["queues"]]
    damage = [{**row, "store": roots[row["store"]]} for row in manifest["damage"]]
    sums = {
        name: sum(queue[name] for queue in queues)
        for name in ("files", "units", "missing", "duplicates")
    }
    whole = not (damage or sums["missing"] or sums["duplicates"])
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
            }
            for store in plan.stores
        ],
        "queues": queues,
        "damage": damage,
    }


def losses_of(report: Mapping[str, Any]) -> list[str]:
    """What is not in the queues, a line each."""
    lines = [
        f"damage in the log, its records are in no queue: {row['store']} at {row['position']},"
        f" {row['size']} bytes ({row['reason']})"
        for row in report["damage"]
    ]
    for queue in report["queues"]:
        name = f"{queue['store']}: {queue['topic']}/{queue['queue_id']}"
        if queue["missing"]:
            lines.append(f"{name}: {queue['missing']} queue offsets have no record, pre-filled")
        if queue["duplicates"]:
            lines.append(f"{name}: {queue['duplicates']} records repeat a queue offset, left out")
    return lines


def _text(report: Mapping[str, Any]) -> str:
    counts = f"{len(report['queues'])} queues, {report['files']} files, {report['units']} units"
    return f"{report['to']}: {counts}, {report['status']}"
