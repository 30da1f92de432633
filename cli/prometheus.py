"""Verdicts as metrics in the text format of Prometheus, for a textfile collector.

All metrics are gauges with the results of the last run. The file is replaced as a whole, so that a collector never
reads half of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ..store.verify.verdict import Verdict
    from .options import Common

_Value = tuple[str, dict[str, str], float]
"""Name, labels, value."""
_PREFIX = "mqstore_verify_"
_HELP = {
    "status": "1 if this is the verdict on the store, else 0; unreadable: the store could not be checked.",
    "findings": "Findings of the last run, by severity.",
    "finding_items": "Records, units or files that the findings of a code are about.",
    "complete": "1 if the last run has checked everything, else 0.",
    "live": "1 if a process wrote to the store during the last run, else 0.",
    "records": "Records of the commit log that the last run has read.",
    "read_bytes": "Bytes of the commit log that the last run has read.",
    "duration_seconds": "Duration of the last run in seconds.",
    "last_run_timestamp_seconds": "When the last run ended, in seconds since 1970.",
}
_MODE = 0o644
"""Readable for the collector, which runs as another user."""


_UNREADABLE = "unreadable"


def write_metrics(
    verdicts: Iterable[tuple[Path | str, Verdict]], common: Common, *, quick: bool, failed: Iterable[Path | str]
) -> None:
    """Print the metrics of all stores, or replace the file of `--output`. failed: see `metrics`."""
    text = metrics(verdicts, time.time(), quick=quick, failed=failed)
    with common.open_output(mode=_MODE) as out:
        out.painted(text)


def metrics(
    verdicts: Iterable[tuple[Path | str, Verdict]],
    now_s: float,
    *,
    quick: bool = False,
    failed: Iterable[Path | str] = (),
) -> str:
    """The text: each metric once, with HELP and TYPE, and a line for each store and label.

    The label `mode` lets quick and deep runs have a file each, side by side. failed: stores that cannot be read;
    iterated after the last verdict.
    """
    rows: dict[str, list[str]] = {name: [] for name in _HELP}

    def add(path: Path | str, values: Iterable[_Value]) -> None:
        for name, labels, value in values:
            labels = {"store": str(path), "mode": "quick" if quick else "deep", **labels}
            pairs = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
            shown = str(int(value)) if value == int(value) else repr(value)
            rows[name].append(f"{_PREFIX}{name}{{{pairs}}} {shown}\n")

    for path, verdict in verdicts:
        add(path, _values(verdict, now_s))
    for path in failed:
        add(path, _statuses(_UNREADABLE))
    return "".join(
        f"# HELP {_PREFIX}{name} {text}\n# TYPE {_PREFIX}{name} gauge\n{''.join(rows[name])}"
        for name, text in _HELP.items()
        if rows[name]
    )


def _statuses(current: str) -> Iterator[_Value]:
    """A value for each possible status: 1 for the current one, else 0."""
    from ..store.verify.verdict import Status

    for status in (*(status.value for status in Status), _UNREADABLE):
        yield "status", {"status": status}, status == current


def _values(verdict: Verdict, now_s: float) -> Iterator[_Value]:
    from ..store.findings.catalogue import Severity

    yield from _statuses(verdict.status.value)
    for severity in Severity:
        count = sum(f.severity is severity for f in verdict.findings)
        yield "findings", {"severity": severity.label}, count
    items: Counter[tuple[str, str]] = Counter()
    for finding in verdict.findings:
        items[finding.code, finding.severity.label] += finding.count
    for (code, label), count in sorted(items.items()):
        yield "finding_items", {"code": code, "severity": label}, count
    yield "complete", {}, not verdict.unread
    yield "live", {}, verdict.live
    yield "records", {}, verdict.records
    yield "read_bytes", {}, verdict.bytes
    yield "duration_seconds", {}, round(verdict.seconds, 6)
    yield "last_run_timestamp_seconds", {}, round(now_s, 3)


def _escape(text: str) -> str:
    """A label's value; bytes of a path that are not UTF-8 become U+FFFD."""
    valid = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return valid.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
