"""What is measured, one subject per process: ``python -m tests.bench.subjects NAME ARGUMENT...``.

A subject imports first, then takes the time of its work alone, and prints one JSON object.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mqstore.store.disk.broker_conf import BrokerConfig

CONSTRUCT_RECORDS = 3000
APPEND_MESSAGES = 400_000
APPEND_ROUNDS = 3


def _cpu_s() -> float:
    """User and system time of this process, and of its children that have ended."""
    costs = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(cost.ru_utime + cost.ru_stime for cost in costs)


def walk(root: str) -> dict[str, Any]:
    """Walk and check every record: chain, offsets, lengths, CRC."""
    from mqstore.store.disk.layout import Layout
    from mqstore.store.log.commit_log import Batch
    from mqstore.store.queues.references import commit_log_of

    start = _cpu_s()
    messages = damaged = 0
    for item in commit_log_of(Layout.open(Path(root))).scan(crc=True, reuse=True):
        if isinstance(item, Batch):
            messages += len(item.columns)
            assert item.body_crc_ok is not None
            damaged += int((~item.body_crc_ok).sum())
        else:
            damaged += item.kind == "damage"
    return {"cpu_s": _cpu_s() - start, "messages": messages, "damaged": damaged}


def decode(root: str, strings: str = "views") -> dict[str, Any]:
    """Decode every field of every record to columns; `packed`: strings to copies of their own."""
    from mqstore.formats.derive import Ragged
    from mqstore.store.disk.layout import Layout
    from mqstore.store.log.commit_log import Batch
    from mqstore.store.queues.references import commit_log_of

    start = _cpu_s()
    messages = 0
    for item in commit_log_of(Layout.open(Path(root))).scan(crc=False, reuse=True):
        if isinstance(item, Batch):
            messages += len(item.columns)
            for name in list(item.columns):
                column = item.columns[name]
                if isinstance(column, Ragged) and strings == "packed":
                    column.packed()
    return {"cpu_s": _cpu_s() - start, "messages": messages}


def where(root: str, expression: str) -> dict[str, Any]:
    """Scan the log for the messages that an expression lets pass; the CRC of those is checked."""
    from mqstore.store.broker.filter import Where
    from mqstore.store.search.log_search import search_log
    from mqstore.store.search.selection import Selection
    from mqstore.store.search.store import StoreReader

    start = _cpu_s()
    with StoreReader(root) as store:
        found = search_log(store, Selection(where=Where(expression)), note=print)
        messages = sum(1 for _ in found)
    return {"cpu_s": _cpu_s() - start, "messages": messages}


def verify(root: str, groups: str = "", jobs: str = "1") -> dict[str, Any]:
    """Check a store: all groups, or those named. Findings above warning are counted as damage."""
    from mqstore.store.findings.catalogue import Severity
    from mqstore.store.search.store import StoreReader
    from mqstore.store.verify.context import Scope
    from mqstore.store.verify.run import load_checks
    from mqstore.store.verify.run import verify as check

    load_checks()
    scope = Scope(groups=frozenset(groups.split(",")) if groups else None)
    cpu, start = _cpu_s(), time.perf_counter()
    with StoreReader(root) as store:
        verdict = check(store, scope, jobs=int(jobs))
    result = {"cpu_s": _cpu_s() - cpu, "wall_s": time.perf_counter() - start}
    damaged = sum(finding.severity > Severity.WARNING for finding in verdict.findings)
    return result | {"messages": verdict.records, "damaged": damaged}


def stats(root: str, by: str) -> dict[str, Any]:
    """Count the records of a log in groups, in one process."""
    from mqstore.store.arrow.log_rows import count_here
    from mqstore.store.arrow.stores import ReadOptions

    start = _cpu_s()
    found = count_here(ReadOptions((root,)), by.split(","), 1, lambda _: None)
    messages = sum(group.messages for group in found.stats.groups.values())
    return {"cpu_s": _cpu_s() - start, "messages": messages}


def report(root: str) -> dict[str, Any]:
    """What `report` does with a store, to the last byte of its page; imports first, as of `verify`."""
    from mqstore.store.findings.next_commands import NOTHING_GIVEN
    from mqstore.store.report.gather import look
    from mqstore.store.report.page import page_of, section_of
    from mqstore.store.search.store import StoreReader
    from mqstore.store.verify.context import Scope
    from mqstore.store.verify.run import load_checks

    load_checks()
    cpu = _cpu_s()
    with StoreReader(root) as store:
        seen = look(store, Scope(), NOTHING_GIVEN, now_ms=0)
        page = "".join(page_of([section_of(seen, 1, str)], "", ""))
    took = _cpu_s() - cpu
    return {"cpu_s": took, "messages": seen.verdict.records, "page_bytes": len(page)}


def compare(root: str) -> dict[str, Any]:
    """Hold a store against itself, as against a copy: all but messages, of which none differs."""
    from mqstore.store.compare.both import compare_stores
    from mqstore.store.search.store import StoreReader

    cpu = _cpu_s()
    with StoreReader(root) as one, StoreReader(root) as other:
        found = compare_stores(one, other, note=lambda size: None)
    assert found.same
    return {"cpu_s": _cpu_s() - cpu, "messages": 0}


def construct(root: str) -> dict[str, Any]:
    """Parse the first records with construct, one by one."""
    from mqstore.formats.message import MESSAGE
    from mqstore.store.disk.layout import Layout
    from mqstore.store.log.commit_log import Batch
    from mqstore.store.queues.references import commit_log_of

    log = commit_log_of(Layout.open(Path(root)))
    batch = next(item for item in log.scan() if isinstance(item, Batch))
    places = zip(batch.position, batch.columns.ints("total_size"), strict=True)
    records = [log.read(int(at), int(size)) for at, size in places][:CONSTRUCT_RECORDS]
    start = _cpu_s()
    for record in records:
        MESSAGE.parse(record)
    return {"cpu_s": _cpu_s() - start, "messages": len(records)}


def carve(path: str) -> dict[str, Any]:
    """Carve the records out of a file or of all files of a directory; nothing is written."""
    from mqstore.store.salvage.carve import Carved
    from mqstore.store.salvage.carve import carve as carve_one
    from mqstore.store.salvage.runs import SalvageSource, images_of

    start = _cpu_s()
    found = Carved()
    for number, each in enumerate(images_of([Path(path)]).files):
        source = SalvageSource(each)
        carve_one(source, number, found)
        source.close()
    seconds = _cpu_s() - start
    whole = sum(run.records for run in found.runs if not run.grade)
    return {"cpu_s": seconds, "messages": whole, "bytes": found.bytes, "split": found.split}


def append(root: str, body_bytes: str, indexed: str = "index") -> dict[str, Any]:
    """Append columns through the library, as a producer's messages: a key, a unique key, a tag.

    The best of some rounds in one process, as a JVM has them on the other side.
    """
    import numpy as np

    from mqstore.formats.derive import Ragged
    from mqstore.store.disk.broker_conf import BrokerConfig

    size = int(body_bytes)
    noise = np.random.default_rng(size).integers(32, 127, size * APPEND_MESSAGES // 64, np.uint8)
    places = np.arange(APPEND_MESSAGES, dtype=np.int64) * 61 % (len(noise) - size)
    texts = [
        b"KEYS\x01order-%012d\x02UNIQ_KEY\x017F0000010A2C18B4AAC2%012X\x02TAGS\x01Tag%d\x02"
        b"WAIT\x01true\x02CLUSTER\x01DefaultCluster\x02" % (n, n, n % 5)
        for n in range(APPEND_MESSAGES)
    ]
    columns = {
        "topic": Ragged.of([b"BenchTopic"] * APPEND_MESSAGES),
        "body": Ragged(noise, places, np.full(APPEND_MESSAGES, size, np.int64)),
        "properties": Ragged.of(texts),
    }
    config = BrokerConfig().with_set(["messageIndexEnable=" + ("true" if indexed == "index" else "false")])
    rounds = [_append(Path(root), config, columns) for _ in range(APPEND_ROUNDS)]
    return min(rounds, key=lambda result: result["wall_s"])


def _append(root: Path, config: BrokerConfig, columns: dict[str, Any]) -> dict[str, Any]:
    """One round: all columns into a new store of the generation that is compared with."""
    from mqstore.store.put.writer import StoreWriter, WriterOptions

    shutil.rmtree(root, ignore_errors=True)
    with StoreWriter.open(root, config, WriterOptions("5.3")) as writer:
        cpu, start = _cpu_s(), time.perf_counter()
        stored = writer.append_columns(columns)
        result = {"cpu_s": _cpu_s() - cpu, "wall_s": time.perf_counter() - start}
    written = int(stored.physical_offset[-1] + stored.total_size[-1])
    return result | {"messages": APPEND_MESSAGES, "bytes": written}


def messages(path: str) -> dict[str, Any]:
    """Make a file of messages for `put --from`: 1 KB bodies, a producer's properties."""
    import pyarrow as pa

    count = 60_000 if path.endswith(".ndjson") else 4 * APPEND_MESSAGES
    properties = [
        [("KEYS", f"order-{n:012}"), ("UNIQ_KEY", f"7F0000010A2C18B4AAC2{n:012X}"), ("TAGS", "a")]
        for n in range(min(count, APPEND_MESSAGES))
    ]
    if path.endswith(".ndjson"):
        common = {"topic": "BenchTopic", "born_host": "10.0.0.1:40000", "body": "x" * 1000}
        with Path(path).open("w") as out:
            out.writelines(json.dumps(common | {"properties": dict(p)}) + "\n" for p in properties)
        return {"messages": count}
    batch = pa.record_batch(
        {
            "topic": ["BenchTopic"] * len(properties),
            "body": pa.array([b"x" * 1000] * len(properties), pa.binary()),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
        }
    )
    with pa.ipc.new_file(path, batch.schema) as out:
        for _ in range(count // len(properties)):
            out.write_batch(batch)
    return {"messages": count}


def put_from(root: str, source: str, *words: str) -> dict[str, Any]:
    """The command, without the start of its process; imports are done before."""
    from mqstore.cli import app, put_many
    from mqstore.store.put import bulk

    assert put_many and bulk
    if source.endswith(".arrow"):
        import pyarrow.ipc

        assert pyarrow.ipc
    answers = ["--output", "/dev/null"] if "--no-answers" not in words else []
    cpu, start = _cpu_s(), time.perf_counter()
    code = app.run(["put", root, "--from", source, *words, *answers])
    result = {"cpu_s": _cpu_s() - cpu, "wall_s": time.perf_counter() - start}
    assert code == 0
    return result | {"messages": 60_000 if source.endswith(".ndjson") else 4 * APPEND_MESSAGES}


def dump(root: str) -> dict[str, Any]:
    """The command over a whole log, as NDJSON, without the start of its process."""
    from mqstore.cli import app, dump_log
    from mqstore.store.log import lines

    assert dump_log and lines
    cpu = _cpu_s()
    code = app.run(["dump", root, "--format", "ndjson", "--output", "/dev/null"])
    assert code == 0
    return {"cpu_s": _cpu_s() - cpu}


def until_read(root: str, command: str, least_bytes: str) -> dict[str, Any]:
    """A command up to its first read of the log, which ends the process: its CPU is the figure.

    least_bytes: smaller reads do not count, such as those of one record.
    """
    from mqstore.cli import app

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the entry point does
    read = os.preadv

    def preadv(descriptor: int, rooms: Any, *arguments: Any) -> int:
        of_log = "/commitlog/" in str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if of_log and len(rooms[0]) >= int(least_bytes):
            os._exit(0)
        return read(descriptor, rooms, *arguments)

    os.preadv = preadv
    raise RuntimeError(f"{command} {root} has not read the log: exit {app.run([command, root])}")


SUBJECTS: dict[str, Callable[..., dict[str, Any]]] = {
    subject.__name__: subject
    for subject in (
        walk,
        decode,
        where,
        verify,
        stats,
        report,
        compare,
        construct,
        carve,
        append,
        messages,
        put_from,
        dump,
        until_read,
    )
}

if __name__ == "__main__":
    print(json.dumps(SUBJECTS[sys.argv[1]](*sys.argv[2:])))
