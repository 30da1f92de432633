"""The figures of the data sources in Spark, with `spark_scan` as the process that is measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .measure import python, run

if TYPE_CHECKING:
    from .figures import Bench, Figure

_MIB = 1 << 20
_WORKER_BYTES_MAX = 300 * _MIB


def data_source(bench: Bench) -> Iterator[Figure]:
    """A scan through the data source, against two plain processes; CPU, memory, filters, fleets."""
    from .figures import Figure

    bench.store("1g-1k")
    bench.store("4g-1k")
    cost: dict[int, float] = {}
    peak = 0
    for gib in (1, 4, 8):
        rounds = [_scan(bench, str(gib)) for _ in range(bench.rounds)]
        plain = min(one["plain_s"] for one in rounds)
        scan = min(one["scan"]["wall_s"] for one in rounds)
        cost[gib] = min(one["scan"]["cpu_s"] for one in rounds) / gib
        peak = max(peak, *(one["worker_peak_bytes"] for one in rounds))
        note = f"plain {plain:.2f} s, Spark {scan:.2f} s, {cost[gib]:.2f} CPU s a GiB"
        target = 0.7 if gib >= 4 else None
        what = f"scan {gib} GiB of 1 KB: plain / data source, by the clock"
        yield Figure(what, plain / scan, ">=", target, note)
    yield Figure("CPU a GiB, 8 GiB / 1 GiB", cost[8] / cost[1], target=1.2)
    yield Figure("largest Python worker / 300 MiB", peak / _WORKER_BYTES_MAX, target=1)
    found = _scan(bench, "filters")
    left = found["left"]["cpu_s"]
    for name, what in (("pushed", "handed down"), ("option", "as an option")):
        yield Figure(
            f"one topic of 100, filter {what} / left to Spark", found[name]["cpu_s"] / left
        )
    fleet = _scan(bench, "fleets")
    many = fleet["200"]["cpu_s"] / 200
    yield Figure(
        "CPU a store, 200 / 50 small stores", many / (fleet["50"]["cpu_s"] / 50), target=1.2
    )


def _scan(bench: Bench, part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run(python("-m", "tests.bench.spark_scan", bench.work, part)).output
    )
    return found
