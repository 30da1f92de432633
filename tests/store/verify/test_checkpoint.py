"""The checkpoint against the log: fields that a start goes by, each wrong alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mqstore.formats.checkpoint import FIELDS, PAGE_BYTES
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import Checkpoint, checkpoint_bytes, read_checkpoint
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.checkpoint import start_of_recovery
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.run import verify

from ...stores import unpack


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a broker that was stopped in order."""
    return unpack("5.5.0-clean", tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(original, tmp_path / "store"))


def said(root: Path, *options: str) -> list[Finding]:
    with StoreReader(root, BrokerConfig().with_set(options)) as store:
        return verify(store, Scope(groups=frozenset({"checkpoint"}))).findings


def with_fields(root: Path, *options: str, **fields: int) -> list[tuple[str, Severity]]:
    """What is said of other values."""
    values = read_checkpoint(root / "checkpoint")
    assert values is not None
    (root / "checkpoint").write_bytes(checkpoint_bytes(values._replace(**fields)).ljust(PAGE_BYTES, b"\0"))
    return [(finding.code, finding.severity) for finding in said(root, *options)]


def test_a_sound_one_and_a_missing_one(root: Path) -> None:
    assert said(root) == []
    (root / "checkpoint").unlink()
    (finding,) = said(root)
    assert (finding.code, finding.severity) == ("I-110", Severity.WARNING)
    assert "a start after a crash would read the whole log" in finding.message


@pytest.mark.parametrize("size", [0, FIELDS.sizeof(), PAGE_BYTES - 1, PAGE_BYTES + 7])
def test_another_length(root: Path, size: int) -> None:
    path = root / "checkpoint"
    path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])
    assert any(f.code == "I-110" and f"not {PAGE_BYTES}" in f.message for f in said(root))


def test_zeros_alone_are_damage_once_messages_were_dispatched(root: Path) -> None:
    """Where the broker was killed young they are what it left."""
    (root / "checkpoint").write_bytes(bytes(PAGE_BYTES))
    assert ("I-110", Severity.ERROR, False) in {(f.code, f.severity, f.unclean) for f in said(root)}
    (root / "abort").touch()
    assert ("I-110", Severity.WARNING, True) in {(f.code, f.severity, f.unclean) for f in said(root)}


@pytest.mark.parametrize(
    ("name", "severity"),
    [("5.5.0-ipv6", Severity.WARNING), ("4.9.7-ipv6", Severity.ERROR), ("5.5.0-clean", Severity.ERROR)],
)
def test_a_broker_of_5_5_that_was_stopped_at_once_leaves_zeros(name: str, severity: Severity, tmp_path: Path) -> None:
    """A real 5.5.1 does: no flush has set a time in its first ten seconds. A put of 4.9 sets one."""
    root = unpack(name, tmp_path)
    (root / "checkpoint").write_bytes(bytes(PAGE_BYTES))
    (finding,) = (finding for finding in said(root) if finding.code == "I-110")
    assert (finding.severity, finding.unclean) == (severity, False)


def test_a_byte_behind_the_fields(root: Path) -> None:
    with (root / "checkpoint").open("r+b") as file:
        file.seek(PAGE_BYTES - 3)
        file.write(b"x")
    (finding,) = said(root)
    assert (finding.code, finding.offset, finding.length) == ("I-110", PAGE_BYTES - 3, 1)


@pytest.mark.parametrize("name", Checkpoint._fields[:3])
def test_times(root: Path, name: str) -> None:
    assert ("I-111", Severity.ERROR) in with_fields(root, **{name: -1})
    with StoreReader(root) as store:
        newest = verify(store, Scope(groups=frozenset({"commit_log"}))).facts.newest
    assert "I-111" not in {code for code, _ in with_fields(root, **{name: newest})}
    assert "I-111" in {code for code, _ in with_fields(root, **{name: newest + 1})}
    (finding,) = (finding for finding in said(root) if finding.code == "I-111")
    assert finding.message.endswith(
        "1 ms later than the newest message: the log has lost its last messages, or the field is wrong"
    )


@pytest.mark.parametrize(("name", "code"), [("confirm_phy_offset", "I-113"), ("logics_physical_offset", "I-117")])
def test_positions_are_those_of_records(root: Path, name: str, code: str) -> None:
    """0 is none; the middle of a record and what lies behind the log are none either."""
    with StoreReader(root) as store:
        second = int(store.log.record(0).columns.ints("total_size")[0])
        end = store.log_end.position
    values = read_checkpoint(root / "checkpoint")
    assert values is not None
    for good in (0, second, getattr(values, name)):
        assert with_fields(root, **{name: good}) == []
    for bad in (-1, second + 1, end + (1 << 40)):
        assert code in {found for found, _ in with_fields(root, **{name: bad})}, bad


def test_where_a_start_after_a_crash_begins(root: Path) -> None:
    """At a file of the log, of the oldest at the latest where nothing is known; not where there is no such start."""
    with StoreReader(root) as store:
        starts = [file.start for file in store.log_files.files]
        context = VerifyContext(store, Scope())
        context.log.dispatched = store.log_end.position
        found = start_of_recovery(context)
        assert found is not None and found.position in starts and found.reason
    (root / "checkpoint").unlink()
    with StoreReader(root) as store:
        found = start_of_recovery(VerifyContext(store, Scope()))
        assert found is not None and found.position == starts[0]


def test_a_store_whose_queues_are_in_a_database_has_another_start(tmp_path: Path) -> None:
    with StoreReader(unpack("5.3.3-rocksdb", tmp_path)) as store:
        assert start_of_recovery(VerifyContext(store, Scope())) is None
    root = unpack("5.5.1-combine-same", tmp_path)
    told = {code for code, _ in with_fields(root, logics_physical_offset=1)}
    alone = {code for code, _ in with_fields(root, "storeType=defaultRocksDB", logics_physical_offset=1)}
    assert "I-117" in told and "I-117" not in alone, "the row in the database decides"


def test_messages_of_a_topic_that_was_deleted_are_not_missed(root: Path) -> None:
    with StoreReader(root) as store:
        last = int(next(store.good_records(store.log_files.files[-1].start)).position[-1])
    shutil.rmtree(root / "consumequeue/payments")
    told = {code for code, _ in with_fields(root, logics_physical_offset=last)}
    assert {"I-114", "I-117"} <= told
    path = root / "config/topics.json"
    content = json.loads(path.read_text())
    del content["topicConfigTable"]["payments"]
    path.write_text(json.dumps(content))
    assert said(root) == []
    path.rename(path.with_name("topics.json.bak"))
    assert {"I-114", "I-117"} <= {finding.code for finding in said(root)}
