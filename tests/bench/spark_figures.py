"""The figures of Spark, with `spark_scan` and `spark_jobs` as the processes that are measured."""

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
        plain = min(one["plain"]["wall_s"] for one in rounds)
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
        yield Figure(f"one topic of 100, filter {what} / left to Spark", found[name]["cpu_s"] / left)
    fleet = _scan(bench, "fleets")
    many = fleet["200"]["cpu_s"] / 200
    yield Figure("CPU a store, 200 / 50 small stores", many / (fleet["50"]["cpu_s"] / 50), target=1.2)


def spark_jobs(bench: Bench) -> Iterator[Figure]:
    """Whether what a job takes grows with the bytes and with the stores, and no faster."""
    from .figures import Figure

    bench.store("1g-1k")
    bench.store("4g-1k")
    for job in ("scan", "rebuild", "verify", "export", "stats"):
        lines = run(python("-m", "tests.bench.spark_jobs", bench.work, job)).output.splitlines()
        found = {row["load"]: row for row in map(json.loads, lines)}
        cpu = {load: row["cpu_s"] for load, row in found.items()}
        note = ", ".join(f"{load} {seconds:.1f}" for load, seconds in cpu.items())
        gib, stores = cpu["8 GiB"] / cpu["1 GiB"] / 8, cpu["200 stores"] / cpu["50 stores"] / 4
        yield Figure(f"{job}: CPU a GiB, 8 GiB / 1 GiB", gib, target=1.2, note=f"CPU s: {note}")
        yield Figure(f"{job}: CPU a store, 200 / 50 small stores", stores, target=1.2)
        peak = max(row["worker_peak_bytes"] for row in found.values())
        yield Figure(f"{job}: largest worker at an end / 300 MiB", peak / _WORKER_BYTES_MAX)


def crossover(bench: Bench) -> Iterator[Figure]:
    """From which size on a store is better cut inside than one task of local code."""
    from .figures import Figure
    from .spark_jobs import CUTS, DEALT_OUT, SIZES

    for name in SIZES:
        bench.store(name)
    for job in DEALT_OUT:
        found: dict[tuple[str, int], dict[str, Any]] = {}
        for cut in CUTS:
            command = python("-m", "tests.bench.spark_jobs", bench.work, job, cut, str(bench.rounds))
            for row in map(json.loads, run(command).output.splitlines()):
                found[cut, row["mib"]] = row
        for mib in SIZES.values():
            whole = found["whole", mib]
            for cut in CUTS[1:]:
                what = f"{job} of {mib} MiB: {cut} / one task, by the clock"
                told = [_told(name, found[name, mib]) for name in ("whole", cut)]
                yield Figure(what, found[cut, mib]["wall_s"] / whole["wall_s"], note="; ".join(told))


def _told(cut: str, row: dict[str, Any]) -> str:
    peak = row["worker_peak_bytes"] // _MIB
    return f"{cut} {row['wall_s']:.2f} s, CPU {row['cpu_s']:.2f} s, worker {peak} MiB"


def _scan(bench: Bench, part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(python("-m", "tests.bench.spark_scan", bench.work, part)).output)
    return found
