"""The options of `export` and its answer, in this process and on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..store.counted import counted
from .damage_option import OnDamage, OnDamageOption
from .declared import Exit, Options, bad_parameter, flag, option
from .exit_codes import ExitCode
from .options import Common, parse_bytes
from .pipeline_options import damage_text, source_options
from .selection_options import Since, Until
from .terminal import page_of
from .unread import Partial, report_bounds, unread_text

if TYPE_CHECKING:
    from ..store.arrow.data_set import Mode
    from ..store.arrow.export_files import ExportHow
    from .output import Output


class FileFormat(Enum):
    """Format of the exported files, for `--format`."""

    PARQUET = "parquet"
    ARROW = "arrow"
    JSON = "json"
    CSV = "csv"
    AVRO = "avro"


BodyOption = StrEnum("BodyOption", "NONE PLAIN STORED")
"""How bodies are exported."""


FileCompression = StrEnum("FileCompression", "ZSTD SNAPPY GZIP LZ4 NONE")
"""Compression of Parquet and Arrow files."""


class ExportOptions(Options):
    body: BodyOption = option(
        "--body", default=BodyOption.PLAIN, help="plain: decompressed; stored: as stored; none: no bodies."
    )
    columns: str | None = option("--columns", metavar="A,B,C", help="Only these columns.")
    topic: list[str] | None = option("--topic", "-t", metavar="T", help="Only these topics; patterns are allowed.")
    since: Since = None
    until: Until = None
    timestamps: bool = flag("--timestamps", help="Add columns with times in UTC beside the milliseconds.")
    compression: FileCompression | None = option(
        "--compression", help="Compression of Parquet and Arrow files. Default: zstd."
    )
    file_size: int = option(
        "--file-size", default="128M", metavar="BYTES", parser=parse_bytes, help="Start another file at this size."
    )
    by_day: bool = flag("--by-day", help="A folder date=YYYY-MM-DD for each UTC day.")
    safe_csv: bool = flag("--safe-csv", help="Put a quote before CSV cells that a spreadsheet would run as a formula.")
    append: bool = flag("--append", help="Add files to the export in DIR.")
    overwrite: bool = flag("--overwrite", help="Replace the export in DIR, in one step.")
    since_last: bool = flag("--since-last", help="Add messages stored after the last export into DIR.")
    on_damage: OnDamageOption = OnDamage.MARK
    partial: Partial = False
    answer_json: bool = flag("--json", help="Answer with one JSON object: counts, files, damage.")

    def asked(self, common: Common) -> dict[str, str]:
        """The options of a read, without its stores. Raises InvalidInput, BadParameter."""
        if self.body is BodyOption.NONE and "body" in map(str.strip, (self.columns or "").split(",")):
            raise bad_parameter("--columns body and --body none cannot be combined")
        given = source_options(common, self.since, self.until)
        found = {"body": self.body.value, **given}
        found |= {"topics": ",".join(self.topic)} if self.topic else {}
        return found | ({"fields": self.columns} if self.columns else {})

    def mode(self) -> Mode:
        """What happens to an export that DIR already holds. Raises BadParameter."""
        from ..store.arrow.data_set import Mode

        flags = {Mode.APPEND: self.append, Mode.OVERWRITE: self.overwrite, Mode.SINCE_LAST: self.since_last}
        given = [mode for mode, flag in flags.items() if flag]
        if len(given) > 1:
            names = " and ".join(f"--{mode}" for mode in given)
            raise bad_parameter(f"{names} cannot be combined")
        times = {"--since": self.since, "--until": self.until}
        for name, value in times.items():
            if self.since_last and value is not None:
                reason = "--since-last continues where the last export ended"
                raise bad_parameter(reason, param_hint=name)
        return given[0] if given else Mode.NEW

    def how(self, form: str) -> ExportHow:
        """How the files are written. Raises InvalidInput, Unsupported."""
        from ..store.arrow.export_files import ExportHow
        from ..store.arrow.export_formats import ExportFormat

        compression = None if self.compression is None else self.compression.value
        kind = ExportFormat(form, compression, self.safe_csv)
        kind.require()
        return ExportHow(kind, self.timestamps, self.by_day, self.file_size, self.on_damage)


def report_of(to: Path, manifest: Mapping[str, Any], unread: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The answer of `export`: counts, files, what could not be read. unread: stores that were left out."""
    lacks = manifest["damage"] or manifest["skipped"] or unread
    return {
        "type": "export",
        "status": "incomplete" if lacks else "complete",
        "to": str(to),
        "mode": manifest["job"]["mode"],
        "format": manifest["job"]["how"]["kind"]["form"],
        "rows": sum(file["rows"] for file in manifest["files"]),
        "bytes": sum(file["bytes"] for file in manifest["files"]),
        **{name: manifest[name] for name in ("files", "damage", "skipped", "marked", "ranges")},
        "unread": [{"store": one["store"], "reason": one["reason"]} for one in unread],
    }


def answer(report: Mapping[str, Any], options: ExportOptions, common: Common, output: Output) -> None:
    """Print the answer to `output`; warn about what is not in the files, or damaged in them. Raises Exit."""
    from ..store.put.on_damage import CorruptedBodies
    from ..store.search.log_search import TimeBounds
    from .json_text import indented_lines

    for row in report["damage"][:_NAMED]:
        common.warn(f"not exported: {damage_text(row)}")
    if len(report["damage"]) > _NAMED:
        common.warn(f"and {counted(len(report['damage']) - _NAMED, 'range')} more, see --json")
    bounds = (
        TimeBounds(0, 0, one["log_files"], one["left_out"], one["steps_back"], one.get("doubtful", False))
        for one in report["ranges"]
        if one["log_files"] is not None
    )
    report_bounds(bounds, common)
    corrupted = CorruptedBodies(options.on_damage, report["skipped"], report["marked"])
    for line in corrupted.remarks():
        common.warn(line)
    with output:
        if options.answer_json:
            for lines in indented_lines(report):
                output.raw(f"{lines}\n".encode())
        else:
            output.record(report, text=_text)
    if report["status"] != "complete" or corrupted.met:
        raise Exit(ExitCode.NO)


_NAMED = 1000
"""Damaged ranges that get a line each."""


def _text(report: Mapping[str, Any]) -> str:
    files = len(report["files"])
    things = ((report["rows"], "message"), (files, "file"), (report["bytes"], "byte"))
    counts = ", ".join(counted(count, thing) for count, thing in things)
    lines = [f"{report['to']}: {counts}, {report['status']}"]
    if left := sum(one["left_out"] for one in report["ranges"]):
        files = sum(one["log_files"] or 0 for one in report["ranges"])
        lines[0] += f"; {left} of {counted(files, 'log file')} left out by time"
    return page_of([*lines, *(unread_text(one) for one in report["unread"])])
