"""`mqstore pipeline export`: messages as files for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..store.counted import counted
from .exit_codes import ExitCode
from .options import Common, shared
from .pipeline_options import Spark, Stores, To, damage_text, showing, source_options
from .selection_options import Since, Until


class FileFormat(Enum):
    """What `--format` says of the files."""

    PARQUET = "parquet"
    JSON = "json"
    CSV = "csv"
    AVRO = "avro"


class BodyOption(Enum):
    """Bodies of the messages."""

    NONE = "none"
    PLAIN = "plain"
    STORED = "stored"


@shared(FileFormat, "That of the files.")
def export(
    stores: Stores,
    *,
    to: To,
    body: Annotated[
        BodyOption,
        typer.Option("--body", help="plain: decompressed; stored: as stored; none: no bodies."),
    ] = BodyOption.PLAIN,
    columns: Annotated[
        str | None, typer.Option("--columns", metavar="A,B,C", help="Only these columns.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="T", help="Only these topics; patterns count."),
    ] = None,
    since: Since = None,
    until: Until = None,
    answer_json: Annotated[
        bool, typer.Option("--json", help="Answer with one JSON object: counts, files, damage.")
    ] = False,
    spark: Spark,
    common: Common,
) -> None:
    """Write messages as Parquet, NDJSON, CSV or Avro files, by topic and day.

    DIR gets topic=TOPIC/date=YYYY-MM-DD/part-….parquet (days are UTC days of the store time), which
    Spark, DuckDB and others read as a table. It appears whole or not at all: what was cut off is
    finished, or started anew, by running the same command again. Parquet and NDJSON are what
    `mqstore put --from` takes. --format is that of the files; the answer is a line, or with --json an
    object.

    Exit code: 0 complete; 1 something could not be read, the rest is there; 4 another job works on
    DIR; 5 cannot be read or written, no Spark.

    \b
    Examples:
      mqstore pipeline export /data/store --to /data/export
      mqstore pipeline export @stores.txt --to /mnt/export --topic 'orders*' --since -7d
      mqstore pipeline export /data/store --to out --format json --body none
    """

    master, settings = spark.place(common)
    from ..pipeline.export import STAGES, on_spark
    from ..pipeline.export import export as run
    from ..store.arrow.fleet import stores_of
    from ..store.arrow.remote import log_sizes
    from .json_text import dumps_wide

    roots = stores_of(stores)
    given = source_options(common, since, until)
    ask = {"path": "\n".join(roots), "body": body.value, **given}
    ask |= {"topics": ",".join(topic)} if topic else {}
    ask |= {"fields": columns} if columns else {}
    common.explain(f"starting Spark on {master} for {counted(len(roots), 'store')}")
    sizes, unread = log_sizes(roots, common.config())
    if not sizes:
        raise unread[0]
    with showing("exporting", sum(sizes.values()), STAGES, common) as tell:
        manifest = run(ask, common.format.value, to, on_spark(master, settings, tell))
    report = report_of(to, manifest)
    for row in report["damage"]:
        common.warn(f"not exported: {damage_text(row)}")
    with common.open_output() as output:
        if answer_json:
            output.raw(f"{dumps_wide(report)}\n".encode())
        else:
            output.record(report, text=_text)
    if report["status"] != "complete":
        raise typer.Exit(ExitCode.NO)


def report_of(to: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of `export`: counts, files, what could not be read."""
    return {
        "type": "export",
        "status": "incomplete" if manifest["damage"] else "complete",
        "to": str(to),
        "format": manifest["job"]["format"],
        "rows": sum(file["rows"] for file in manifest["files"]),
        "bytes": sum(file["bytes"] for file in manifest["files"]),
        "files": manifest["files"],
        "damage": manifest["damage"],
    }


def _text(report: Mapping[str, Any]) -> str:
    files = len(report["files"])
    things = ((report["rows"], "message"), (files, "file"), (report["bytes"], "byte"))
    counts = ", ".join(counted(count, thing) for count, thing in things)
    return f"{report['to']}: {counts}, {report['status']}"
