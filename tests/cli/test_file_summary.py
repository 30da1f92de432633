"""What `inspect` says of a directory or a file of each kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.cli.file_kinds import file_kind
from mqstore.cli.file_summary import summary_text
from mqstore.formats.kinds import KINDS

from .. import stores, tiered
from .datadriven import run_here
from .printed import inspected


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "abort"])
def test_files_of_every_kind(kind: str, tmp_path: Path) -> None:
    """Directories and single files; what is told is JSON and text."""
    stores_of = {
        **dict.fromkeys(("dledger", "dledger-index", "dledger-state"), "5.3.3-dledger"),
        "consume-queue-ext": "4.9.7-cqext",
        "batch-consume-queue": "5.3.3-batchcq",
        "compaction-log": "5.3.3-compaction",
        "sparse-consume-queue": "5.3.3-compaction",
        "lmq-consumer-offset": "4.9.7-lmq",
        "rocksdb": "5.3.3-rocksdb",
    }
    name = stores_of.get(kind, "5.3.3-timer-clean")
    places = {
        "consume-queue-ext": "consumequeue_ext",
        "batch-consume-queue": "batchconsumequeue",
        "compaction-log": "compaction/compactionLog",
        "sparse-consume-queue": "compaction/compactionCq",
        "timer-check": "config/timercheck",
        "commit-log": "commitlog",
        "consume-queue": "consumequeue",
        "index-file": "index",
        "timer-log": "timerlog",
        "timer-wheel": "timerwheel",
        "dledger": "dledger-n0",
        "dledger-index": "dledger-n0/index",
        "dledger-state": "dledger-n0/currterm",
        "rocksdb": "consumequeue",
    }
    places |= {kind: str(place) for kind, place in tiered.PLACES.items()}
    places["tiered-index-file"] = tiered.INDEX_FILES
    if kind in tiered.PLACES:
        root = tiered.unpack("5.5.0", tmp_path)
    elif kind == "tiered-index-file":
        root = tiered.unpack_killed("5.5.0", tmp_path)
    else:
        root = stores.unpack(name, tmp_path)
    missing = ("topicQueueMapping.json", "tieredStoreMetadata.json", "messageRequestMode.json")
    (root / "config").mkdir(exist_ok=True)
    for file in ("broker.properties", *missing):
        (root / "config" / file).write_text("{}")
    (root / "epochFileCheckpoint").write_text("1\n0\n1-0\n")
    (root / "brokerIdentity").write_text("cluster#broker-a#1")
    if file := KINDS[kind].file:
        places[kind] = f"{KINDS[kind].place}/{file}".lstrip("/")
    path = root / places.get(kind, kind)
    files = [path] if path.is_file() else sorted(p for p in path.rglob("0*") if p.is_file())
    for each in (path, *(files[:1] if kind != "rocksdb" else ())):
        found = inspected(each)
        assert (found["type"], found["kind"]) == ("file", kind)
        assert found["bytes"] > 0
        assert run_here(["inspect", str(each)]).code == 0


def test_every_kind_is_described() -> None:
    """A new kind cannot be forgotten."""
    for kind in KINDS:
        assert callable(file_kind(kind).summary)


def test_names_make_no_lines_of_their_own() -> None:
    text = "a\nmqstore: all is well"
    told = {"path": text, "bytes": 7, "topic": text, "column_families": [text], "contents": [text, "b"]}
    assert len(summary_text({"type": "file", **told}, True).splitlines()) == 6
