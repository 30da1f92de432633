"""Makes the corpus of each target: small real bytes of tests/stores, and inputs that were bugs once.

    python -m tests.fuzz.seeds

Inputs named `bug-….bin` stay; the rest is rebuilt.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import lz4.frame
import zstandard

from mqstore.formats.dledger_index import UNIT_BYTES
from mqstore.formats.index_file import ITEM_BYTES, items_offset
from mqstore.formats.message import SysFlag
from mqstore.formats.rocksdb_consume_queue import bound_key, unit_key
from mqstore.store.settings.read import FILES

from .. import stores, tiered
from ..formats.derive.schemas import REAL_SCHEMAS
from ..packing import PACKERS
from .all_targets import TARGETS
from .target import CORPUS, joined
from .text_targets import planted

STORE = "5.3.3-timer-clean"
LARGEST_BYTES = 4096
_PLACES = {
    "commit-log message": ("commitlog", 0),
    "commit-log blank": ("commitlog", 0),
    "consume-queue unit": ("consumequeue", 0),
    "index-file header": ("index", 0),
    "index-file item": ("index", items_offset(97) + ITEM_BYTES),
    "checkpoint checkpoint": ("checkpoint", 0),
    "timer-log unit": ("timerlog", 0),
    "timer-wheel slot": ("timerwheel", 0),
}


def cuttings(root: Path) -> dict[str, bytes]:
    """The front of the first file of each part of a store."""
    found: dict[str, bytes] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            found.setdefault(path.relative_to(root).parts[0], file.read(LARGEST_BYTES))
    return found


def first_file(path: Path) -> Path:
    """The path itself, or the first file below it."""
    return path if path.is_file() else next(p for p in sorted(path.rglob("*")) if p.is_file())


def records(root: Path) -> list[bytes]:
    """Some whole records of the log."""
    log = (root / "commitlog" / f"{0:020d}").read_bytes()
    rows = list(stores.messages(STORE))[:6]
    starts = [row["physical_offset"] for row in rows]
    return [log[at : at + row["total_size"]] for at, row in zip(starts, rows, strict=True)]


def file_seeds(root: Path, other: Path) -> Iterator[tuple[str, str, bytes]]:
    """(target, name, input)."""
    parts = cuttings(root)
    units, wheel = parts["consumequeue"][:400], parts["timerlog"]
    some = records(root)
    for name in REAL_SCHEMAS:
        part, at = _PLACES.get(name, ("commitlog", 0))
        with first_file(root / part).open("rb") as file:
            file.seek(at)
            yield "schemas", name.replace(" ", "-"), joined([name.encode(), file.read(400)])
    for number, record in enumerate(some):
        yield "record", f"real-{number}", record
    whole = b"".join(some)
    yield "log_scan", "real", b"\0" + whole + bytes(64)
    yield "log_scan", "two-files", b"\1" + whole + bytes(64)
    yield "log_scan", "damaged", b"\0" + whole[:100] + b"\xff" + whole[101:]
    yield "log_scan", "torn", b"\2" + whole[:-30]
    for name, (_, packed) in PACKERS.items():
        yield "compressed_log", name.replace(" ", "-"), packed(whole + bytes(1 << 17) + some[0])
        yield "compressed_log", f"bomb-{name.replace(' ', '-')}", packed(bytes(5 << 20))
    entries = (other / "dledger-n0" / "data" / f"{0:020d}").read_bytes()[:1500]
    yield "dledger_scan", "real", b"\0" + entries
    yield "queue", "real", b"\0" + units
    yield "queue", "two-files", b"\1" + units
    yield "index", "real", parts["index"][:2000]
    yield "timers", "real", b"\0" + wheel
    yield "timers", "two-files", b"\1" + wheel
    for number, part in enumerate(sorted(parts)):
        yield "recognised", part, bytes([number]) + parts[part][:600]
    yield (
        "store",
        "real",
        joined(
            [
                *(b"\0" + whole, b"\0" + units[:100], parts["index"][:2000]),
                *(parts["checkpoint"][:64], b'{"topicConfigTable":{"T":{}},"dataVersion":{}}', b""),
            ]
        ),
    )
    yield "checkpoint", "real", parts["checkpoint"][:64]


def content_seeds() -> Iterator[tuple[str, str, bytes]]:
    """The same, of what is inside records."""
    yield "hashes", "text", "aA\u00e9\U0001f600".encode()
    yield "shown", "plain", joined([b"T", b"KEYS\1a b\2TAGS\1t\2", b"\0", b"body"])
    yield "shown", "compressed", joined([b"T", b"", b"\1", zlib.compress(b"body" * 9)])
    yield ("properties", "plain", joined([b"KEYS", b"KEYS\1a b\2TAGS\1t\2KEYS\1again\2odd\2\1x\2y\1"]))
    for bits, packed in (
        (SysFlag.COMPRESSED | SysFlag.ZLIB, zlib.compress(b"body" * 9)),
        (SysFlag.COMPRESSED | SysFlag.LZ4, lz4.frame.compress(b"body" * 9)),
        (SysFlag.COMPRESSED | SysFlag.ZSTD, zstandard.compress(b"body" * 9)),
    ):
        yield "body", f"flag-{int(bits)}", joined([int(bits).to_bytes(2, "big"), packed])
    for number, text in enumerate(
        (
            "a > 1 AND (b IS NOT NULL OR NOT c = 'x')",
            "a BETWEEN 1 AND 2.5 OR @queue_id IN ('3', '4')",
            "a CONTAINS 'x' AND b NOT STARTSWITH 'y' AND c ENDSWITH 'z'",
            "-1 <> a AND TRUE = b",
        )
    ):
        yield "where", f"kind-{number}", joined([text.encode(), b"a\0012\2b\1y\2", b"c\1xz\2"])


def text_seeds(root: Path) -> Iterator[tuple[str, str, bytes]]:
    """The same, of texts beside the records."""
    yield "properties_file", "plain", b"# x\na = 1\\\n  2\nb:\\u0041\n!\nmapedFileSizeCommitLog=9\n"
    for name in ("topics.json", "consumerOffset.json", "delayOffset.json"):
        yield "config_files", name, (root / "config" / name).read_bytes()[:1000]
    yield "config_files", "small", b'{"topicConfigTable":{"T":{"attributes":{}}},"dataVersion":{}}'
    yield "config_files", "offsets", b'{"offsetTable":{"T@g":{0:12,1:-3}}}'
    for number, time in enumerate(("-1h", "yesterday", "2026-11-20T21:38:00Z", "1700000000123")):
        yield "times", f"kind-{number}", joined([b"-1h", time.encode()])
    yield "message_ids", "v4", b"7F00000100002A9F0000000000000345"
    yield "message_ids", "host", b"[::1]:10911"
    yield "patterns", "stars", joined([b"orders-1", b"ord*s-[0-9]?"])
    yield (
        "put_lines",
        "plain",
        json.dumps({"topic": "T", "body": "x", "properties": {"KEYS": "k"}, "born_host": "127.0.0.1:1"}).encode(),
    )
    yield "put_lines", "raw", b'{"topic":"T","raw":true,"body_base64":"eA==","sys_flag":1}\n\n{'
    for kind in ("write", "truncate", "create", "move"):
        yield "journals", kind, planted(kind=kind)
    yield "journals", "outside", planted(path="../victim")


def kind_seeds(root: Path, folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """The same, of the other kinds of files."""
    filtered, batches = stores.unpack("4.9.7-cqext", folder), stores.unpack("5.3.3-batchcq", folder)
    for number, name in enumerate(sorted(FILES)):
        path = root / "config" / name
        if path.exists():
            yield "config_kinds", name.replace(".", "-"), bytes([number]) + path.read_bytes()[:1500]
    text = (filtered / "config" / "consumerFilter.json").read_bytes()
    yield "config_text", "filters", text
    yield "config_text", "odd", b"\xef\xbb\xbf{a:1,'b':[1.5e3,null,],/* x */\"c\":{0:-1}}\0"
    yield "filters", "real", text
    yield ("ext", "real", b"\0" + first_file(filtered / "consumequeue_ext" / "sql").read_bytes()[:600])
    queue = first_file(batches / "batchconsumequeue").read_bytes()
    yield "batch_queue", "real", b"\0" + queue
    yield "batch_queue", "two-files", b"\1" + queue
    compacted = stores.unpack("5.3.3-compaction", folder) / "compaction" / "compactionCq"
    yield "sparse_queue", "real", b"\0" + first_file(compacted / "state" / "0").read_bytes()
    with first_file(folder / "5.3.3-dledger" / "dledger-n0" / "index").open("rb") as index:
        yield "dledger_units", "real", b"\0" + index.read(100 * UNIT_BYTES)
    segments = tiered.unpack("5.5.0", folder) / tiered.INDEX
    yield "tiered_items", "real", min(segments.iterdir()).read_bytes()
    left = tiered.unpack_killed("5.5.0", folder) / tiered.INDEX_FILES
    for number, path in enumerate(sorted(left.iterdir())[-2:]):
        yield "tiered_index_items", f"real-{number}", path.read_bytes()
    epochs = b"2\n773307083\n7-7000\n8-8000\n"
    for name, text in (("epochFileCheckpoint", epochs), ("brokerIdentity", b"c#b#3")):
        yield "config_kinds", name, bytes([sorted(FILES).index(name)]) + text
    yield "timer_check", "real", (root / "config" / "timercheck").read_bytes()[:32]
    yield "rocksdb_entries", "unit", joined([unit_key(b"T", 1, 7), bytes(28)])
    yield "rocksdb_entries", "bound", joined([bound_key(b"T", 1, b"max"), bytes(16)])
    yield "rocksdb_entries", "config", joined([b"T", b'{"topicName":"T","perm":6}'])


def main() -> None:
    """Write the corpus."""
    for path in CORPUS.rglob("*"):
        if path.is_file() and not path.name.startswith("bug-"):
            path.unlink()
    with tempfile.TemporaryDirectory() as folder:
        root = stores.unpack(STORE, Path(folder))
        other = stores.unpack("5.3.3-dledger", Path(folder))
        made = (file_seeds(root, other), content_seeds(), text_seeds(root))
        for target, name, data in chain(*made, kind_seeds(root, Path(folder))):
            assert target in TARGETS, target
            (CORPUS / target).mkdir(parents=True, exist_ok=True)
            (CORPUS / target / f"{name}.bin").write_bytes(data)


if __name__ == "__main__":
    main()
