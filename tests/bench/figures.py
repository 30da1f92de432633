"""The figures and their targets, in groups. Each group measures when it is called."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..stores import unpack
from . import limits
from .limits import Limit
from .measure import crc_cpu_s, least, python, run, subject
from .spark_figures import crossover, data_source, spark_jobs
from .stores import log_files, make, store_bench

MIB = 1 << 20
_SETTLED_S = 3.5
"""A store that was changed a moment ago is planned once more under the lock."""


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
    """One row: a ratio, and what it has to be. `target` None: only to be told. limit: the physical one."""

    what: str
    ratio: float
    sign: str = "<="
    target: float | None = None
    note: str = ""
    limit: Limit | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached."""
        if self.target is None:
            return None
        return self.ratio <= self.target if self.sign == "<=" else self.ratio >= self.target


def walk(bench: Bench) -> Iterator[Figure]:
    """Walking and checking every record, against crc."""
    for name, body, target in (("1g-1k", "1 KB", 1.0), ("1g-100", "100 B", 1.5)):
        yield _walk(bench, name, f"walk and check, {body} bodies / crc", target)
    yield _walk(bench, "1g-4k", "walk and check, 4 KB bodies / crc", 0.9)


def _walk(bench: Bench, name: str, what: str, target: float) -> Figure:
    root = bench.store(name)
    files = log_files(root)
    ours, crc = least(bench.rounds, lambda: float(subject("walk", root)["cpu_s"]), lambda: crc_cpu_s(files))
    messages = subject("walk", root)["messages"]
    note = f"{ours * 1e9 / messages:.0f} ns a record"
    return Figure(what, ours / crc, target=target, note=note, limit=limits.crc(tuple(files)))


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
        files = tuple(log_files(root))
        copied = limits.copy_s(files) / subject("walk", root)["messages"]
        for seconds, what, target in zip(ours, ("", ", strings copied"), (50, None), strict=True):
            yield Figure(
                f"decode{what}, {body} bodies: x construct's rate",
                construct / seconds,
                ">=",
                target,
                f"{seconds * 1e9:.0f} ns a record",
                Limit(construct / copied, "a copy of the log"),
            )


def _seconds_a_record(what: str, *arguments: str | Path) -> float:
    result = subject(what, *arguments)
    return float(result["cpu_s"] / result["messages"])


def where(bench: Bench) -> Iterator[Figure]:
    """Selecting by a condition over properties, against crc; nothing is found, so nothing printed."""
    root = bench.store("1g-1k")
    files = log_files(root)
    for what, expression in (
        ("few values", "TAGS = 'none' OR CLUSTER IN ('none', 'no')"),
        ("each value once", "UNIQ_KEY ENDSWITH 'none'"),
        ("numbers, each value once", "KEYS > 7"),
    ):
        ours, crc = least(bench.rounds, partial(_seconds, "where", root, expression), lambda: crc_cpu_s(files))
        limit = limits.crc(tuple(files))
        yield Figure(f"--where, 1 KB bodies, {what} / crc", ours / crc, target=1.2, limit=limit)


def stats(bench: Bench) -> Iterator[Figure]:
    """`stats --by topic,hour` in one process, against crc, and memory."""
    peak = 0
    for name, body, target in (("1g-1k", "1 KB", 1.1), ("1g-100", "100 B", 2)):
        root = bench.store(name)
        files = log_files(root)
        ours, crc = least(bench.rounds, partial(_seconds, "stats", root, "topic,hour"), partial(crc_cpu_s, files))
        what, limit = f"stats --by topic,hour, {body} bodies / crc", limits.cat(tuple(files))
        yield Figure(what, ours / crc, target=target, limit=limit)
        memory = subject("stats", root, "topic,hour", memory=True)["peak_bytes"]
        peak = max(peak, memory)
    yield Figure("stats --by topic,hour, peak anonymous memory, MiB", peak / MIB, target=300)


def verify(bench: Bench) -> Iterator[Figure]:
    """`verify --deep`: the log for itself, the whole store, two processes, and memory."""
    stores = (("1g-4k", "4 KB", 0.9, 1.2), ("1g-1k", "1 KB", 1.0, 1.6), ("1g-100", "100 B", 1.5, 3.5))
    for name, body, target, whole_target in stores:
        root = bench.store(name)
        files = log_files(root)
        log, whole, crc = least(
            bench.rounds,
            partial(_seconds, "verify", root, "commit_log"),
            partial(_seconds, "verify", root),
            partial(crc_cpu_s, files),
        )
        what, limit = f"verify, the log, {body} bodies / crc", limits.crc(tuple(files))
        yield Figure(what, log / crc, target=target, limit=limit)
        what = f"verify, whole store, {body} bodies / crc"
        yield Figure(what, whole / crc, target=whole_target, limit=limit)
    root = bench.store("1g-1k")
    one, two = least(
        bench.rounds,
        lambda: float(subject("verify", root)["wall_s"]),
        lambda: float(subject("verify", root, "", "2")["wall_s"]),
    )
    limit = limits.two_processes(tuple(log_files(root)))
    what = "verify, 1 KB, by the clock: one process / two"
    yield Figure(what, one / two, ">=", 1.8, limit=limit)
    peak = max(subject("verify", bench.store(name), memory=True)["peak_bytes"] for name in ("1g-100", "4g-1k"))
    yield Figure("verify, peak anonymous memory, MiB", peak / MIB, target=200)
    yield from _against_the_brokers_check(bench)


def _against_the_brokers_check(bench: Bench) -> Iterator[Figure]:
    """The log for itself, whole process, against a fresh JVM that checks each of its records."""
    for name, body in (("1g-4k", "4 KB"), ("1g-1k", "1 KB"), ("1g-100", "100 B")):
        root = bench.store(name)
        command = [*python("-m", "mqstore", "verify", root), "--only", "commit_log", "--quiet"]
        ours, theirs = least(
            bench.rounds,
            lambda command=command: run(command).wall_s,  # type: ignore[misc]
            lambda root=root: float(store_bench("check", f"root={root}")["checked_s"]),  # type: ignore[misc]
        )
        what = f"verify, the log, {body}, whole process / the broker's check in a JVM, by the clock"
        limit = Limit(limits.cat_s(tuple(log_files(root))) / theirs, "cat")
        note = f"{ours:.2f} s; {theirs:.2f} s"
        yield Figure(what, ours / theirs, target=0.5, note=note, limit=limit)


def _seconds(what: str, *arguments: str | Path) -> float:
    return float(subject(what, *arguments)["cpu_s"])


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
    """Columns appended through the library, against what the real store takes and dispatches."""
    ours, theirs = bench.work / "append-ours", bench.work / "append-java"
    mine, plain, real = [], [], []
    for _ in range(bench.rounds):
        shutil.rmtree(ours, ignore_errors=True)
        mine.append(subject("append", ours, "1000"))
        shutil.rmtree(ours, ignore_errors=True)
        plain.append(subject("append", ours, "1000", "plain"))
        shutil.rmtree(theirs, ignore_errors=True)
        real.append(store_bench("rate", f"root={theirs}", "body=1000", "secs=1", "rounds=3"))
    for root in (ours, theirs):
        shutil.rmtree(root, ignore_errors=True)
    cpu_s = min(result["cpu_s"] / result["messages"] for result in plain)
    their_cpu_s = min(float(result["cpu_s"]) for result in real)
    rate, note = _rate(plain), f"log and queues, CPU {cpu_s * 1e6:.2f} us a message"
    written = plain[0]["messages"] / limits.write_s(bench.work, plain[0]["bytes"], fsync=False)
    limit = Limit(written / 1e6, "write of the log")
    what = "append columns, 1 KB, by the clock / 1 M a second"
    yield Figure(what, rate / 1e6, ">=", 1, note, limit)
    note = f"CPU {min(r['cpu_s'] / r['messages'] for r in mine) * 1e6:.2f} us a message"
    yield Figure("append columns with index, by the clock / 1 M a second", _rate(mine) / 1e6, note=note)
    acknowledged, dispatched = (
        max(float(result[name]) for result in real) for name in ("acknowledged_per_s", "dispatched_per_s")
    )
    note = f"all CPU: {their_cpu_s / cpu_s:.2f}; {acknowledged / 1e6:.2f} M a second"
    what = "append columns, 1 KB, rate / real 5.3.3 acknowledged"
    limit = Limit(written / acknowledged, "write of the log")
    yield Figure(what, rate / acknowledged, ">=", 4, note, limit)
    note, limit = f"{dispatched / 1e6:.2f} M a second", Limit(written / dispatched, limit.what)
    what = "append columns with index, rate / real 5.3.3 dispatched"
    yield Figure(what, _rate(mine) / dispatched, ">=", 2.5, note, limit)
    files = log_files(bench.store("1g-1k"))
    crc_s = least(bench.rounds, partial(crc_cpu_s, files))[0]
    crc_s *= plain[0]["bytes"] / sum(file.stat().st_size for file in files)
    what = "append columns, 1 KB, CPU / crc of as many bytes"
    yield Figure(what, cpu_s * plain[0]["messages"] / crc_s)


def _rate(results: list[dict[str, float]]) -> float:
    """The most messages a second, by the clock."""
    return max(result["messages"] / result["wall_s"] for result in results)


def stream(bench: Bench) -> Iterator[Figure]:
    """`put --from`: groups that share an fsync, and files of columns; by the clock."""
    ours, theirs = bench.work / "stream-ours", bench.work / "stream-java"
    sources = [bench.work / f"stream.{suffix}" for suffix in ("ndjson", "arrow")]
    for source in sources:
        subject("messages", source)
    ways: dict[str, list[str | Path]] = {
        "NDJSON, answers": [sources[0], "--format", "ndjson"],
        "NDJSON": [sources[0], "--no-answers"],
        "Arrow": [sources[1], "--no-answers"],
    }
    taken: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    real = []
    for _ in range(bench.rounds):
        for way, words in ways.items():
            shutil.rmtree(ours, ignore_errors=True)
            taken[way].append(subject("put_from", ours, *words, "--flush", "sync"))
        shutil.rmtree(theirs, ignore_errors=True)
        options = ("body=1000", "secs=1", "rounds=3", "flush=sync")
        real.append(store_bench("rate", f"root={theirs}", *options))
    for path in (ours, theirs):
        shutil.rmtree(path, ignore_errors=True)
    one = max(float(result["acknowledged_per_s"]) for result in real)
    messages, size = (taken["NDJSON"][0]["messages"], sources[0].stat().st_size)
    synced = Limit(messages / limits.write_s(bench.work, size, fsync=True) / one, "write, fsync")
    for way, results in taken.items():
        cpu_s = min(result["cpu_s"] / result["messages"] for result in results)
        note = f"{_rate(results) / 1e3:.0f} k a second, CPU {cpu_s * 1e6:.1f} us; {one / 1e3:.1f} k"
        what = f"put --flush sync, {way}, rate / real 5.3.3, one thread"
        yield Figure(what, _rate(results) / one, ">=", 10, note, synced)


def dump(bench: Bench) -> Iterator[Figure]:
    """`dump --format ndjson` of a whole log, CPU a message, and memory."""
    for name, body in (("1g-1k", "1 KB"), ("1g-100", "100 B")):
        root = bench.store(name)
        messages = subject("walk", root)["messages"]
        cpu_s = least(bench.rounds, partial(_seconds, "dump", root))[0]
        peak = subject("dump", root, memory=True)["peak_bytes"] / MIB
        what = f"dump --format ndjson, {body} bodies, CPU us a message"
        copied = limits.copy_s(tuple(log_files(root))) / messages * 1e6
        limit = Limit(copied, "a copy of the log")
        yield Figure(what, cpu_s / messages * 1e6, target=10.5, limit=limit)
        yield Figure(f"dump --format ndjson, {body} bodies, MiB", peak, target=300)


def start(bench: Bench) -> Iterator[Figure]:
    """Whole processes of one answer, against a bare Python. Needs neither Java nor a quiet machine."""
    root = unpack("5.3.3-clean", bench.work / "start")
    mqstore = python("-c", "from mqstore.cli.app import main; main()")
    place = ("--topic", "logs", "--queue", "0", "--offset", "10")
    commands: dict[str, tuple[list[str | Path], float | None]] = {
        "": (python("-c", "pass"), None),
        "get by queue offset": ([*mqstore, "get", root, *place], START),
        "get by message id": ([*mqstore, "get", root, "--message-id", _AN_ID], START),
        "--help": ([*mqstore, "--help"], START),
        "get --help": ([*mqstore, "get", "--help"], START),
        "inspect": ([*mqstore, "inspect", root], None),
        "dump --count 1": ([*mqstore, "dump", root, "--count", "1"], None),
        "verify": ([*mqstore, "verify", root], None),
        "recover": ([*mqstore, "recover", root], None),
    }
    commands["import numpy, construct"] = (python("-c", _NEEDED), None)
    for name, until, least_bytes, budget in (
        ("verify", "a byte of the log is read", 1, START),
        ("verify", "the pass over the log begins", _PASS_BYTES, RECOVER_START),
        ("recover", "a byte of the log is read", 1, START),
    ):
        reads = python("-m", "tests.bench.subjects", "until_read", root, name, str(least_bytes))
        commands[f"{name}, until {until}"] = (reads, budget)
    costs = [[run(c).cpu_s for c, _ in commands.values()] for _ in range(bench.rounds * 4)]
    bare, *least_s = [min(column) for column in zip(*costs, strict=True)]
    for (what, (_, target)), cpu_s in zip(list(commands.items())[1:], least_s, strict=True):
        yield Figure(f"{what} / python -c pass", cpu_s / bare, "<=", target, f"{cpu_s:.3f} s")


def trace(bench: Bench) -> Iterator[Figure]:
    """`trace` by key, whole processes: through the index of a large store, and without one."""
    large, root, bare = bench.store("4g-1k"), bench.store("1g-1k"), bench.work / "no-index"
    bare.mkdir(exist_ok=True)
    for name in ("commitlog", "consumequeue", "checkpoint"):
        if not (bare / name).exists():
            (bare / name).symlink_to(root / name)
    mqstore = python("-c", "from mqstore.cli.app import main; main()")
    indexed, scanned, crc = least(
        bench.rounds,
        lambda: run([*mqstore, "trace", large, _A_KEY]).cpu_s,
        lambda: run([*mqstore, "trace", bare, _A_KEY]).cpu_s,
        lambda: crc_cpu_s(log_files(root)),
    )
    yield Figure("trace by key, 4 GiB with an index, CPU seconds", indexed, target=0.5)
    what = "trace by key, 1 GiB of 1 KB without an index, whole process / crc"
    yield Figure(what, scanned / crc, note=f"{scanned:.2f} s")


_A_KEY = "order-000000400000"
START = 7
"""What the start of a short command may cost (`cli/declared.py`)."""
RECOVER_START = 24
"""A budget to be held, above the 0.15 s that are asked for: numpy and construct alone take more."""
_NEEDED = "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import numpy, construct"
_PASS_BYTES = 1 << 16
"""A record that is looked up is read in smaller pieces."""
_AN_ID = "7F0000010000521200000000000027BB"


def put(bench: Bench) -> Iterator[Figure]:
    """One message, start to acknowledged, against a JVM with the real store; by the clock."""
    roots = [bench.work / name for name in ("put-java", "put-ours")]
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
    command = [*python("-m", "mqstore", "put", roots[1], "BenchTopic", "x" * 1000), "--keys", "k"]
    ours, theirs = [], []
    for _ in range(bench.rounds * 2):
        ours.append(run(command))
        theirs.append(store_bench("one", f"root={roots[0]}"))
    for root in roots:
        shutil.rmtree(root, ignore_errors=True)
    real_s = min(float(r["acknowledged_s"]) for r in theirs)
    wall = min(cost.wall_s for cost in ours) / real_s
    cpu = min(cost.cpu_s for cost in ours) / min(float(r["cpu_s"]) for r in theirs)
    what = "put one message, start to exit / JVM to acknowledged"
    limit = Limit((limits.start_s() + limits.write_s(bench.work, 1000, fsync=True)) / real_s, "python, write, fsync")
    yield Figure(what, wall, "<=", 0.2, f"by the clock; CPU {cpu:.2f}", limit)


def recover(bench: Bench) -> Iterator[Figure]:
    """The plan of a recovery, whole process, against the real load of the same store; by the clock."""
    for name, body, crashed_target, clean_target in (("1g-1k", "1 KB", 0.2, 0.25), ("1g-100", "100 B", 0.15, 0.25)):
        for crashed, target in ((True, crashed_target), (False, clean_target)):
            copy = bench.work / "recover"
            command = [*python("-m", "mqstore", "recover", copy), "--quiet"]
            ours, theirs = [], []
            for _ in range(bench.rounds):
                _copy_linked(bench.store(name), copy, crashed=crashed)
                ours.append(run(command, codes=(0, 3)).wall_s)  # 3: not shut down cleanly
                theirs.append(float(store_bench("load", f"root={copy}")["loaded_s"]))
            read = limits.cat_s(limits.files_of(*(copy / part for part in PARTS)))
            shutil.rmtree(copy)
            exit_ = "after a crash" if crashed else "after a clean stop"
            note = f"{min(ours):.2f} s; {min(theirs):.2f} s"
            what = f"recover, 1 GiB of {body}, {exit_} / real 5.3.3 load"
            limit = Limit(read / min(theirs), "cat")
            yield Figure(what, min(ours) / min(theirs), "<=", target, note, limit)


def rebuild(bench: Bench) -> Iterator[Figure]:
    """Queues and index from the log, whole process, against the real store's own at its start."""
    for name, body, target in (("1g-1k", "1 KB", 0.3), ("1g-100", "100 B", 0.3)):
        copy = bench.work / "rebuild"
        command = [*python("-m", "mqstore", "repair", copy), "--all", "--apply", "--yes", "-q"]
        ours, theirs = [], []
        for _ in range(bench.rounds):
            _copy_bare(bench.store(name), copy)
            ours.append(run(command))
            _copy_bare(bench.store(name), copy)
            theirs.append(store_bench("rebuild", f"root={copy}"))
        wall_s = min(cost.wall_s for cost in ours)
        cpu = min(cost.cpu_s for cost in ours) / min(float(r["cpu_s"]) for r in theirs)
        real_s = min(float(r["rebuilt_s"]) for r in theirs)
        what = f"rebuild, 1 GiB of {body} / real 5.3.3, by the clock"
        note = f"{wall_s:.2f} s; {real_s:.2f} s; CPU {cpu:.2f}"
        made = limits.bytes_of(bench.store(name) / part for part in PARTS[1:])
        least_s = limits.cat_s(tuple(log_files(bench.store(name))))
        least_s += limits.write_s(bench.work, made, fsync=True)
        limit = Limit(least_s / real_s, "cat, write, fsync")
        yield Figure(what, wall_s / real_s, "<=", target, note, limit)
        _copy_bare(bench.store(name), copy)
        peak = run(command, memory=True).peak_bytes / MIB
        shutil.rmtree(copy)
        yield Figure(f"rebuild, {body}: peak anonymous memory, MiB", peak, target=200)


PARTS = ("commitlog", "consumequeue", "index")
"""What a recovery reads, and a rebuild makes of the first."""


def _copy_bare(store: Path, copy: Path) -> None:
    """A copy without queues and index, changed long enough ago."""
    _copy_linked(store, copy, crashed=False, without=("consumequeue", "index"))
    time.sleep(_SETTLED_S)


def _copy_linked(store: Path, copy: Path, *, crashed: bool, without: tuple[str, ...] = ()) -> None:
    """A copy whose log is the same files: a load writes nothing to records that are whole. Holes stay
    holes, as a broker has left them.
    """
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    parts = [path for path in store.iterdir() if path.name not in ("commitlog", *without)]
    run(["cp", "-r", "--sparse=always", *parts, copy])
    (copy / "commitlog").mkdir()
    for file in log_files(store):
        (copy / "commitlog" / file.name).hardlink_to(file)
    if crashed:
        (copy / "abort").touch()


def salvage(bench: Bench) -> Iterator[Figure]:
    """Carving: records against crc; data without any in bytes a second of CPU."""
    for name, body in (("1g-1k", "1 KB"), ("1g-100", "100 B"), ("1g-4k", "4 KB")):
        root = bench.store(name)
        files = log_files(root)
        ours, crc = least(bench.rounds, partial(_seconds, "carve", root / "commitlog"), partial(crc_cpu_s, files))
        what, limit = f"carve 1 GiB of records, {body} bodies / crc", limits.crc(tuple(files))
        yield Figure(what, ours / crc, target=1.65, limit=limit)
    noise = bench.work / "noise"
    if not noise.exists():
        chance = random.Random(1)
        noise.write_bytes(b"".join(chance.randbytes(MIB) for _ in range(_NOISE_BYTES // MIB)))
    ours = least(bench.rounds, partial(_seconds, "carve", noise))[0]
    what = "search 512 MiB without a record, MB/s of CPU"
    yield Figure(what, _NOISE_BYTES / ours / 1e6, ">=", 500)


_NOISE_BYTES = 512 * MIB


def report(bench: Bench) -> Iterator[Figure]:
    """`report` against `verify`, whose pass it counts in, its page and memory; `diff` of a copy."""
    for name, body in (("1g-1k", "1 KB"), ("1g-100", "100 B")):
        root = bench.store(name)
        files = log_files(root)
        page, check, copy, crc = least(
            bench.rounds,
            partial(_seconds, "report", root),
            partial(_seconds, "verify", root),
            partial(_seconds, "compare", root),
            partial(crc_cpu_s, files),
        )
        yield Figure(f"report / verify, {body} bodies", page / check, target=1.3)
        yield Figure(f"diff of a copy, without messages, {body} bodies / crc", copy / crc)
    stores = [bench.store(name) for name in ("1g-100", "4g-1k")]
    peaks = [subject("report", root, memory=True)["peak_bytes"] for root in stores]
    yield Figure("report, peak anonymous memory, MiB", max(peaks) / MIB, target=300)
    peaks = [subject("compare", root, memory=True)["peak_bytes"] for root in stores]
    yield Figure("diff of a copy, peak anonymous memory, MiB", max(peaks) / MIB, target=300)
    sizes = [float(subject("report", root)["page_bytes"]) for root in stores]
    yield Figure("report, the page, MB", max(sizes) / 1e6, target=3)


def rocksdb(bench: Bench) -> Iterator[Figure]:
    """Queues in a RocksDB: `verify` against queues in files, and the rebuild against that of a broker."""
    queues = ("--queues", "--apply", "--yes", "-q", "--broker-version", _WITH_ROCKSDB)
    told = ("--set", "storeType=defaultRocksDB")
    for name, body in (("1g-1k", "1 KB"), ("1g-100", "100 B"), ("3g-100", "100 B, 3 GiB")):
        copy = bench.work / "rocksdb"
        repair = [*python("-m", "mqstore", "repair", copy), *queues, *told]
        load = ("rebuild", f"root={copy}", "type=defaultRocksDB")
        ours, theirs = [], []
        for _ in range(bench.rounds):
            _copy_bare(bench.store(name), copy)
            theirs.append(store_bench(*load, version=_WITH_ROCKSDB))
            _copy_bare(bench.store(name), copy)
            ours.append(run(repair, codes=(0, 1)))  # 1: it has no configuration
        wall_s = min(cost.wall_s for cost in ours)
        real_s = min(float(row["rebuilt_s"]) for row in theirs)
        cpu = min(cost.cpu_s for cost in ours) / min(float(row["cpu_s"]) for row in theirs)
        note = f"{wall_s:.1f} s; {real_s:.1f} s; CPU {cpu:.2f}"
        what = f"repair --queues of a RocksDB, {body} / real {_WITH_ROCKSDB}, by the clock"
        yield Figure(what, wall_s / real_s, target=1, note=note)
        _copy_bare(bench.store(name), copy)
        peak = run(repair, codes=(0, 1), memory=True).peak_bytes / MIB
        yield Figure(f"repair --queues of a RocksDB, {body}, MiB", peak, target=300)
        # as `stores.make`: of a store that is not in order `verify` makes a plan, too
        run([*repair[:5], "--config", "--index", *queues[1:], *told])
        check = python("-m", "mqstore", "verify", "-q")
        costs = [
            [run([*check, root], codes=(0, 1, 3)).cpu_s for root in (copy, bench.store(name))]
            for _ in range(bench.rounds)
        ]
        of_database, of_files = map(min, zip(*costs, strict=True))
        note = f"{of_database:.1f} s; {of_files:.1f} s"
        what = f"verify, queues in a RocksDB / in files, {body}, CPU"
        yield Figure(what, of_database / of_files, target=2, note=note)
        for words in (("verify", "-q"), ("recover", "-q"), ("inspect",)):
            command = [*python("-m", "mqstore", words[0], copy), *words[1:]]
            peak = run(command, codes=(0, 1, 3), memory=True).peak_bytes / MIB
            yield Figure(f"{words[0]}, queues in a RocksDB, {body}, MiB", peak, target=300)
        shutil.rmtree(copy)


_WITH_ROCKSDB = "5.5.1"


GROUPS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    group.__name__: group
    for group in (
        *(walk, decode, where, stats, verify, memory, append, stream, dump, start, trace, put, recover),
        *(rebuild, rocksdb, salvage, report, data_source, spark_jobs, crossover),
    )
}
