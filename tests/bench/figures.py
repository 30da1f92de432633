"""The figures and their targets, in groups. Each group measures when it is called."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .measure import crc_cpu_s, least, python, run, subject
from .stores import log_files, make, store_bench

MIB = 1 << 20


@dataclass(frozen=True)
class Bench:
    """Where the stores lie, and how often everything is measured."""

    work: Path
    rounds: int

    def store(self, name: str) -> Path:
        """The store of that name, made where it is missing."""
        return make(self.work, name)


@dataclass(frozen=True)
class Figure:
    """One row: a ratio, and what it has to be. `target` None: only to be told."""

    what: str
    ratio: float
    sign: str = "<="
    target: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is reached."""
        if self.target is None:
            return None
        return self.ratio <= self.target if self.sign == "<=" else self.ratio >= self.target


def walk(bench: Bench) -> Iterator[Figure]:
    """Walking and checking every record, against crc."""
    for name, body, target in (("1g-1k", "1 KB", 1.9), ("1g-100", "100 B", 3.9)):
        yield _walk(bench, name, f"walk and check, {body} bodies / crc", target)
    yield _walk(bench, "1g-4k", "walk and check, 4 KB bodies / crc", None)


def _walk(bench: Bench, name: str, what: str, target: float | None) -> Figure:
    root = bench.store(name)
    files = log_files(root)
    ours, crc = least(
        bench.rounds,
        lambda: float(subject("walk", root)["cpu_s"]),
        lambda: crc_cpu_s(files),
    )
    messages = subject("walk", root)["messages"]
    return Figure(what, ours / crc, target=target, note=f"{ours * 1e9 / messages:.0f} ns a record")


def decode(bench: Bench) -> Iterator[Figure]:
    """Full decode to columns, against construct's parse rate."""
    for name, body in (("1g-1k", "1 KB"), ("1g-100", "100 B")):
        root = bench.store(name)
        construct, *ours = least(
            bench.rounds,
            partial(_seconds_a_record, "construct", root),
            partial(_seconds_a_record, "decode", root),
            partial(_seconds_a_record, "decode", root, "packed"),
        )
        for seconds, what, target in zip(ours, ("", ", strings copied"), (50, None), strict=True):
            yield Figure(
                f"decode{what}, {body} bodies: x construct's rate",
                construct / seconds,
                ">=",
                target,
                f"{seconds * 1e9:.0f} ns a record",
            )


def _seconds_a_record(what: str, *arguments: str | Path) -> float:
    result = subject(what, *arguments)
    return float(result["cpu_s"] / result["messages"])


def memory(bench: Bench) -> Iterator[Figure]:
    """Peak anonymous memory of a walk, and that it does not grow with the log."""
    small, large = (
        max(subject("walk", bench.store(name), memory=True)["peak_bytes"] for _ in range(2))
        for name in ("1g-1k", "4g-1k")
    )
    dense = subject("walk", bench.store("1g-100"), memory=True)["peak_bytes"]
    worst = max(small, large, dense) / MIB
    yield Figure("walk: peak anonymous memory / 200 MiB", worst / 200, "<=", 1, f"{worst:.0f} MiB")
    yield Figure("walk: peak at 4 GiB / at 1 GiB", large / small, "<=", 1.1)


def append(bench: Bench) -> Iterator[Figure]:
    """Columns appended through the library, against the real store's acknowledged rate."""
    ours, theirs = bench.work / "append-ours", bench.work / "append-java"
    body = 1000

    def seconds_a_message() -> float:
        shutil.rmtree(ours, ignore_errors=True)
        result = subject("append", ours, str(body))
        return float(result["wall_s"] / result["messages"])

    def java_seconds_a_message() -> float:
        shutil.rmtree(theirs, ignore_errors=True)
        result = store_bench("rate", f"root={theirs}", f"body={body}", "secs=1", "rounds=3")
        return 1 / float(result["acknowledged_per_s"])

    mine, real = least(bench.rounds, seconds_a_message, java_seconds_a_message)
    for root in (ours, theirs):
        shutil.rmtree(root, ignore_errors=True)
    rate = 1e-6 / mine
    yield Figure("append columns, 1 KB, by the clock / 1 M messages a second", rate, ">=", 1)
    note = f"{1e-6 / real:.2f} M acknowledged a second"
    yield Figure(
        "append columns, 1 KB / real 5.3.3 store, by the clock", real / mine, ">=", 2.5, note
    )


def start(bench: Bench) -> Iterator[Figure]:
    """Whole processes of one answer, against a bare Python."""
    root = bench.store("1g-1k")
    mqstore = python("-m", "mqstore")
    bare = python("-c", "pass")
    get = [*mqstore, "get", root, "--topic", "T000", "--queue", "0", "--offset", "10"]
    commands = {"": bare, "get by queue offset": get, "--help": [*mqstore, "--help"]}
    costs = [[run(command) for command in commands.values()] for _ in range(bench.rounds * 4)]
    cpu = [min(cost.cpu_s for cost in column) for column in zip(*costs, strict=True)]
    wall = [min(cost.wall_s for cost in column) for column in zip(*costs, strict=True)]
    for what, cpu_s, wall_s in list(zip(commands, cpu, wall, strict=True))[1:]:
        note = f"by the clock {wall_s / wall[0]:.2f}"
        yield Figure(f"{what}, start to exit / python -c pass", cpu_s / cpu[0], "<=", 10, note)


def put(bench: Bench) -> Iterator[Figure]:
    """One message, start to acknowledged, against a JVM with the real store; by the clock."""
    roots = [bench.work / name for name in ("put-java", "put-ours")]
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
    body = "x" * 1000
    command = [*python("-m", "mqstore"), "put", roots[1], "BenchTopic", body, "--keys", "k"]
    ours, theirs = least(
        bench.rounds,
        lambda: run(command).wall_s,
        lambda: float(store_bench("one", f"root={roots[0]}")["acknowledged_s"]),
    )
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
    yield Figure("put one message, start to exit / JVM to acknowledged", ours / theirs, "<=", 0.2)


GROUPS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    group.__name__: group for group in (walk, decode, memory, append, start, put)
}
