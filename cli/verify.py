"""`mqstore verify`: check the invariants of a store, report every finding."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .exit_codes import ExitCode
from .options import Common, command_app, shared

if TYPE_CHECKING:
    from ..store.verify.finding import Finding
    from ..store.verify.run import Verdict

app = command_app()


@app.command()
@shared()
def verify(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Root directories of stores.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Structure and ends only: no CRC of any body.")
    ] = False,
    *,
    common: Common,
) -> None:
    """Check every invariant of a store and report each that does not hold. Writes nothing.

    Log, queues, index, checkpoint, timer, configuration: each for itself and against the others,
    in both directions. A finding says what is wrong and where, what a broker does with it, and the
    next command; `mqstore explain CODE` tells the whole story.

    Exit code: 0 clean; 1 damaged; 3 not shut down cleanly, nothing else; 5 cannot be read.

    \b
    Examples:
      mqstore verify /data/store
      mqstore verify /data/store --format json | jq '.[] | select(.type == "summary")'
      mqstore verify /data/store-* --quick
    """
    from ..store.verify.run import Status

    code = ExitCode.DONE
    verdicts: list[Verdict] = []

    def records() -> Iterator[dict[str, Any]]:
        for path in paths:
            verdict = _verify(path, quick, common)
            verdicts.append(verdict)
            for finding in verdict.findings:
                yield finding_json(finding, path)
            yield _summary(path, verdict)

    with common.open_output() as out:
        out.records(records(), text=_text, columns=_COLUMNS)
    statuses = {verdict.status for verdict in verdicts}
    if Status.UNCLEAN in statuses:
        code = ExitCode.UNCLEAN
    if Status.DAMAGED in statuses:
        code = ExitCode.NO
    raise typer.Exit(code)


_COLUMNS = (
    *("type", "code", "severity", "path", "offset", "length", "count", "message"),
    *("broker", "repair", "status"),
)


def _verify(path: Path, quick: bool, common: Common) -> Verdict:
    from ..store.store import Store
    from ..store.verify.run import verify
    from ..store.verify.scene import Scope

    with Store(path, common.config(), rate_bytes=common.rate) as store:
        total = sum(file.size for file in store.log_files.files)
        done = store.log_files.start
        with common.progress("checking the log", total) as bar:

            def tell(position: int) -> None:
                nonlocal done
                bar.advance(max(0, position - done))
                done = max(done, position)

            return verify(store, Scope(quick=quick), progress=tell)


def finding_json(finding: Finding, store: Path) -> dict[str, Any]:
    """A finding as the contract has it."""
    from ..store.verify.catalogue import catalogue

    told = catalogue()[finding.code]
    row: dict[str, Any] = {
        "type": "finding",
        "code": finding.code,
        "severity": finding.severity.label,
        "path": finding.path,
        "offset": finding.offset,
        "length": finding.length,
        "count": finding.count,
        "message": finding.message,
        "broker": told.broker,
        "repair": told.repair.format(
            store=shlex.quote(str(store)),
            topic=shlex.quote(finding.topic or ""),
            path=shlex.quote(finding.path),
            queue_id=finding.queue_id,
        ),
    }
    if finding.topic is not None:
        row["topic"], row["queue_id"] = finding.topic, finding.queue_id
    if finding.unclean:
        row["unclean"] = True
    return row


def _summary(path: Path, verdict: Verdict) -> dict[str, Any]:
    from ..store.verify.catalogue import Severity

    counts = {level.label: 0 for level in Severity}
    for finding in verdict.findings:
        counts[finding.severity.label] += 1
    return {
        "type": "summary",
        "store": str(path),
        "status": verdict.status.value,
        **counts,
        "records": verdict.records,
        "bytes": verdict.bytes,
        "seconds": round(verdict.seconds, 3),
        "unread": verdict.unread,
    }


def _text(record: Mapping[str, Any]) -> str:
    if record["type"] == "summary":
        return f"{record['store']}: {record['status']}, {record['records']} records"
    where = record["path"] if record["offset"] is None else f"{record['path']} @{record['offset']}"
    return f"{record['severity']:8}{record['code']}  {record['message']}  ({where})"
