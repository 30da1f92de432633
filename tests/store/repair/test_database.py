"""A RocksDB of queues is built anew from the log, whole; queues go from files to a RocksDB, and back."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from mqstore.formats.rocksdb_consume_queue import BOUND, BOUNDS, MIN, UNIT_KEY, UNITS, bound_key, unit_key
from mqstore.store.broker.profiles import LMQ_OPTIONS
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout, queue_directories
from mqstore.store.errors import NotFound, Refused, Unsupported
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.next_commands import settings
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.rocksdb import RocksDb
from mqstore.store.queues.rocksdb_write import database_files, rewritten
from mqstore.store.recover import recovery
from mqstore.store.repair import parts
from mqstore.store.repair.parts import QueueStoreKind, RepairPart, as_kind, chosen, refuse_kind
from mqstore.store.repair.repair import Repair, analyze, refuse_at_once, replan
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import Applied, apply
from mqstore.store.session.undo import session_to_undo, undo
from mqstore.store.settings.generation import Generation
from mqstore.store.verify.run import verify
from tests.cli.datadriven import run_here

from ... import stores
from ...rocks_cases import case_of, damaged
from ...slices import pick
from ...verdict import said_of
from ..disk.test_lock import other_process
from ..put.faults import CountingFiles, Killed, KilledFiles
from ..session.test_undo import everything

pytestmark = pytest.mark.long

NOW_MS = 1_795_300_000_000
QUEUES = chosen([RepairPart.QUEUE], ())
ROCKS, HYBRID, SAME = "5.3.3-rocksdb", "5.5.1-combine-lmq", "5.5.1-combine-same"
MIGRATED, FILES = "5.5.1-combine-migrated", "5.5.1-clean"


def opened(name: str, folder: Path) -> Layout:
    root = stores.unpack(name, folder)
    return Layout.open(root, BrokerConfig(stores.config(name, root)))


def again(layout: Layout) -> Layout:
    return Layout.open(layout.root, layout.broker_config)


def examined(layout: Layout, kind: QueueStoreKind | None = None) -> Repair:
    return analyze(again(layout), QUEUES, None, NOW_MS, kind=kind)


def carried_out(layout: Layout, kind: QueueStoreKind | None = None, files: Files | None = None) -> Applied:
    found = examined(layout, kind)
    plan = found.plan
    return apply(again(layout), plan, lambda: replan(again(layout), found.request), files or Files())


def taken_back(layout: Layout, done: Applied) -> None:
    now = again(layout)
    undo(now, session_to_undo(now, done.session), Files())


def rows_of(path: Path) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Units and bounds, without the `min` rows that somebody asked for."""
    with RocksDb.open(path) as database:
        bounds = {k: v for k, v in database.items(BOUNDS) if b"\x01min\x01" not in k}
        return dict(database.items(UNITS)), bounds


def errors(layout: Layout) -> list[str]:
    with StoreReader(again(layout)) as store:
        return [f.code for f in verify(store).findings if f.severity > Severity.WARNING]


def database_of(layout: Layout) -> Path:
    assert layout.queue_database is not None
    return layout.queue_database


@pytest.mark.parametrize("name", [ROCKS, HYBRID, SAME])
def test_nothing_to_do_where_all_units_are_there(name: str, tmp_path: Path) -> None:
    layout = opened(name, tmp_path)
    before = everything(layout.root)
    assert examined(layout).nothing_to_do
    assert everything(layout.root) == before


def _no_current(path: Path) -> None:
    (path / "CURRENT").unlink()


def _no_table(path: Path) -> None:
    max(path.glob("*.sst"), key=lambda file: file.stat().st_size).unlink()


def _torn_table(path: Path) -> None:
    table = max(path.glob("*.sst"), key=lambda file: file.stat().st_size)
    table.write_bytes(table.read_bytes()[: table.stat().st_size // 2])


def _wrong_unit(path: Path) -> None:
    units, _ = rows_of(path)
    key = sorted(units)[len(units) // 2]
    for name, data in rewritten(path, {key: bytes(28)}).made.items():
        (path / name).write_bytes(data)


def _units_beyond(path: Path) -> None:
    """Units far behind the last message and below 0, and one of a queue that the log does not know."""
    numbers = ((b"TopicA", 1 << 40), (b"TopicA", -5), (b"GhostTopic", 0))
    unit = next(iter(rows_of(path)[0].values()))
    entries = {unit_key(topic, 0, number): unit for topic, number in numbers}
    for name, data in rewritten(path, entries).made.items():
        (path / name).write_bytes(data)


def _no_row(path: Path) -> None:
    for name, data in rewritten(path, {b"\1" * 40: b""}, BOUNDS).made.items():
        (path / name).write_bytes(data)


DAMAGE = {
    "no CURRENT": _no_current,
    "no table": _no_table,
    "torn": _torn_table,
    "wrong unit": _wrong_unit,
    "units beyond": _units_beyond,
    "no row": _no_row,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [ROCKS, HYBRID, SAME])
@pytest.mark.parametrize("damage", DAMAGE)
def test_the_rows_are_there_again(damage: str, name: str, tmp_path: Path) -> None:
    layout = opened(name, tmp_path)
    wanted = rows_of(database_of(layout))
    DAMAGE[damage](database_of(layout))
    kind = QueueStoreKind.ROCKSDB if damage == "no CURRENT" else None
    now = as_kind(layout, kind) if kind else again(layout)
    broken = everything(layout.root)
    done = carried_out(now, kind)
    assert rows_of(database_of(again(now))) == wanted
    assert examined(now, kind).nothing_to_do
    taken_back(now, done)
    assert everything(layout.root) == broken


def test_a_row_of_the_first_unit_that_hides_messages(tmp_path: Path) -> None:
    """`recover` put it right, and a repair of all had nothing to do."""
    layout = opened(ROCKS, tmp_path)
    place = database_of(layout)
    first = UNIT_KEY.parse(min(rows_of(place)[0]))
    row = BOUND.build({"physical_offset": 1 << 20, "queue_offset": first.queue_offset + 1})
    for name, data in rewritten(place, {bound_key(first.topic, first.queue_id, MIN): row}, BOUNDS).made.items():
        (place / name).write_bytes(data)
    assert errors(again(layout))
    carried_out(again(layout))
    assert not errors(again(layout))
    assert examined(again(layout)).nothing_to_do


def test_the_record_that_a_broker_leaves_out(tmp_path: Path) -> None:
    """B40: the first record has no unit in the database; a broker never mends that."""
    layout = opened(MIGRATED, tmp_path)
    before = everything(layout.root)
    missing = len(rows_of(database_of(layout))[0])
    done = carried_out(layout)
    assert len(rows_of(database_of(layout))[0]) == missing + 1
    assert not errors(layout)
    taken_back(layout, done)
    assert everything(layout.root) == before


@pytest.mark.few(2)
@pytest.mark.parametrize("number", range(12))
def test_killed_at_any_step(number: int, tmp_path: Path) -> None:
    layout = opened(MIGRATED, tmp_path / "counted")
    counting = CountingFiles()
    carried_out(layout, None, counting)
    wanted = rows_of(database_of(layout))
    at = pick(range(len(counting.steps)), f"steps of a database {number}", 1)[0]
    layout = opened(MIGRATED, tmp_path / "killed")
    before = everything(layout.root)
    with pytest.raises(Killed):
        carried_out(layout, None, KilledFiles(at))
    done = carried_out(layout)
    assert rows_of(database_of(again(layout))) == wanted
    if done.session:
        taken_back(layout, done)
        assert everything(layout.root) == before


@pytest.mark.parametrize("name", [FILES, SAME])
def test_to_a_rocksdb_and_back(name: str, tmp_path: Path) -> None:
    layout = opened(name, tmp_path)
    before = everything(layout.root)
    units = sum(row["max_offset"] for row in stores.truth(name)["queues"].values())
    alone = as_kind(layout, QueueStoreKind.ROCKSDB)
    first = carried_out(alone, QueueStoreKind.ROCKSDB)
    moved = again(alone)
    assert moved.rocksdb_queues and len(rows_of(database_of(moved))[0]) == units
    assert not [path for path in layout.consume_queue.iterdir() if path.is_dir()]
    assert not errors(alone)
    files = as_kind(moved, QueueStoreKind.FILES)
    second = carried_out(files, QueueStoreKind.FILES)
    assert not database_files(layout.consume_queue)
    assert examined(files, QueueStoreKind.FILES).nothing_to_do
    taken_back(files, second)
    taken_back(alone, first)
    assert everything(layout.root) == before


@pytest.mark.parametrize(
    ("name", "kind", "elsewhere"), [(SAME, "rocksdb", False), ("5.5.1-rocksdb-lmq", "files", True)]
)
def test_a_move_that_was_cut_off_is_gone_on_with_by_its_own_command(
    name: str, kind: str, elsewhere: bool, tmp_path: Path
) -> None:
    """It tells what was done, and what is to be changed in broker.conf, as if it had not been cut off. Others refuse.

    elsewhere: its journal is not in the store.
    """
    layout, place = opened(name, tmp_path), tmp_path / "journals"
    source = shutil.copytree(layout.root, tmp_path / "source", symlinks=True)
    options = {option: value for option, value in layout.broker_config.items() if option not in LMQ_OPTIONS}
    words = [str(layout.root), "--apply", "--yes", *settings(options)]
    words += ["--journal", str(place)] if elsewhere else []

    def moved(files: Files) -> list[str]:
        """What the command says, without the name of the session."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("mqstore.cli.repair.files_of", lambda *_: files)
            done = run_here(["repair", *words, "--queues", "--as", kind])
        first, *lines = done.stdout.splitlines()
        assert done.code == 0 and first.endswith("A broker can be started."), done.stdout + done.stderr
        return [line for line in lines if line and "original bytes are kept" not in line]

    place.mkdir()
    whole = moved(counting := CountingFiles())
    assert whole[-1].startswith("In broker.conf, before its start: storeType=default")
    begun, over = (counting.steps.index(("rename", f"{mark}.new")) for mark in ("sealed", "done"))
    for at in ((begun + over) // 2, over + 2):  # behind it the start barrier alone is left
        for there in (layout.root, place):
            shutil.rmtree(there)
        shutil.copytree(source, layout.root, symlinks=True)
        place.mkdir()
        with pytest.raises(Killed):
            moved(KilledFiles(at))
        refused = run_here(["recover", *words])
        assert refused.code == 5 and f"--queues --as {kind} --apply" in refused.stderr, at
        with other_process(layout.lock):  # what a process is at work on is not cut off
            assert run_here(["recover", *words]).code == 4
        assert moved(Files()) == (whole if at < over else whole[-1:]), at


NOWHERE = {"%LMQ%a/0": 19, "%LMQ%b/0": 22, "%LMQ%long-namelong-namelong-namelong-namelong-name/0": 21}
"""Units that 5.5.1 makes of the log where it has no queues, with storeType=defaultRocksDB."""


@pytest.mark.parametrize("name", [FILES, ROCKS])
def test_queues_of_a_log_that_is_gone_stay_where_they_are(name: str, tmp_path: Path) -> None:
    """A database made of no log would have none of their messages."""
    layout = opened(name, tmp_path)
    shutil.rmtree(layout.root / "commitlog")
    kind = QueueStoreKind.FILES if name == ROCKS else QueueStoreKind.ROCKSDB
    found = again(layout)
    for look in (lambda: examined(layout, kind), lambda: refuse_at_once(found, None, kind)):
        with pytest.raises(Refused, match="no commit log"):
            look()


def test_a_rocksdb_of_some_queues_gets_all_of_them(tmp_path: Path) -> None:
    """Of LITE topics it had them, by an option that a broker with its queues in a RocksDB alone does not ask for: it
    has all, and LMQs that were nowhere. A move that is asked for once more leaves them there.
    """
    layout = opened("5.5.1-combine-selective", tmp_path)
    words = ["repair", str(layout.root), "--queues", "--as", "rocksdb", "--apply", "--yes"]
    options = settings(layout.broker_config)
    done = run_here([*words, *options])
    assert done.code == 0 and "A broker can be started." in done.stdout and "Next:" not in done.stdout
    units = rows_of(database_of(again(layout)))[0]
    for queue, row in stores.truth("5.5.1-combine-selective")["queues"].items():
        assert sum(_is_of(queue, key) for key in units) == (row["max_offset"] or NOWHERE[queue]), queue
    once_more = run_here([*words, *options])
    assert once_more.code == 0 and "Nothing to repair" in once_more.stdout and "storeType=default" in once_more.stdout
    assert rows_of(database_of(again(layout)))[0] == units


def _is_of(queue: str, key: bytes) -> bool:
    unit = UNIT_KEY.parse(key)
    return f"{unit.topic.decode()}/{unit.queue_id}" == queue


def test_files_are_what_they_were(tmp_path: Path) -> None:
    """Queues that went to a RocksDB and back have the same bytes."""
    layout = opened(FILES, tmp_path)
    wanted = {
        path.relative_to(layout.root): path.read_bytes() for path in layout.consume_queue.rglob("*") if path.is_file()
    }
    alone = as_kind(layout, QueueStoreKind.ROCKSDB)
    carried_out(alone, QueueStoreKind.ROCKSDB)
    carried_out(as_kind(again(alone), QueueStoreKind.FILES), QueueStoreKind.FILES)
    made = {path: (layout.root / path).read_bytes() for path in wanted}
    assert made == wanted


@pytest.mark.parametrize("left", [0, 10])
def test_queues_without_messages_go_on_where_they_ended(left: int, tmp_path: Path) -> None:
    """left: units of a queue in files that a broker with a RocksDB left behind."""
    layout = opened("5.3.3-expired", tmp_path)
    file = next((layout.consume_queue / "gone" / "0").iterdir())
    data = file.read_bytes()
    alone = as_kind(layout, QueueStoreKind.ROCKSDB)
    carried_out(alone, QueueStoreKind.ROCKSDB)
    if left:
        file.parent.mkdir(parents=True)
        file.write_bytes(data[: left * 20].ljust(len(data), b"\0"))
    files = as_kind(again(alone), QueueStoreKind.FILES)
    carried_out(files, QueueStoreKind.FILES)
    with StoreReader(again(files)) as store:
        ends = {(row.topic, row.queue_id): (row.min_offset, row.max_offset) for row in store.queue_summaries}
        found = [finding.code for finding in verify(store).findings]
    assert ends["gone", 0] == (20, 20)
    assert ends["SCHEDULE_TOPIC_XXXX", 0] == (2, 2)
    assert found == []


def test_a_rocksdb_tells_the_ends_of_queues_without_messages(tmp_path: Path) -> None:
    """What lies behind the last message there, as the offset of a delay level, is neither wrong nor repaired."""
    alone = as_kind(opened("5.3.3-expired", tmp_path), QueueStoreKind.ROCKSDB)
    carried_out(alone, QueueStoreKind.ROCKSDB)
    with StoreReader(again(alone)) as store:
        assert verify(store).findings == []
    found = analyze(again(alone), chosen([RepairPart.CONFIG], ()), None, NOW_MS)
    assert found.nothing_to_do


def test_batches_stay_in_files(tmp_path: Path) -> None:
    layout = as_kind(opened("5.3.3-batchcq", tmp_path), QueueStoreKind.ROCKSDB)
    with pytest.raises(Refused, match="batch queues cannot go"):
        examined(layout, QueueStoreKind.ROCKSDB)


@pytest.mark.parametrize("told_by", ["compaction", "config"])
def test_compaction_topics_stay_in_files(told_by: str, tmp_path: Path) -> None:
    """Brokers since 5.4 find no compaction log beside a RocksDB, and do not start where there is one."""
    layout = as_kind(opened("5.3.3-compaction", tmp_path), QueueStoreKind.ROCKSDB)
    shutil.rmtree(layout.root / ({"compaction", "config"} - {told_by}).pop())
    with pytest.raises(Refused, match="compaction topics cannot go"):
        analyze(again(layout), QUEUES, "5.5.1", NOW_MS, kind=QueueStoreKind.ROCKSDB)
    plain = Layout.open(layout.root, layout.broker_config.with_set(["enableCompaction=false"]))
    for now, version in ((again(layout), "5.3.3"), (plain, "5.5.1")):
        assert analyze(now, QUEUES, version, NOW_MS, kind=QueueStoreKind.ROCKSDB).plan.edits


@pytest.mark.parametrize("option", ["", "storeType=defaultRocksDB"])
def test_no_plan_makes_one_beside_a_dledger_log(option: str, tmp_path: Path) -> None:
    """Once it was there no other plan would be made for the store."""
    root = stores.unpack("5.3.3-dledger", tmp_path)
    layout = Layout.open(root, BrokerConfig().with_set([option] if option else []))
    kind = None if option else QueueStoreKind.ROCKSDB
    layout = as_kind(layout, kind) if kind else layout
    refused = pytest.raises(Unsupported, match=r"DLedger log beside a RocksDB")
    with refused:
        analyze(layout, QUEUES, None, NOW_MS, kind=kind)
    with refused:
        recovery.analyze(layout)


def test_an_option_that_the_start_needs_is_named(tmp_path: Path) -> None:
    """Compaction topics go into a RocksDB with it alone, and brokers since 5.4 do not start without it then."""
    root = str(stores.unpack("5.3.3-compaction", tmp_path))
    words = ["--broker-version", "5.5.1", "--set", "enableCompaction=false", "--apply", "--yes"]
    done = run_here(["repair", root, "--queues", "--as", "rocksdb", *words])
    assert "In broker.conf, before its start: storeType=defaultRocksDB, enableCompaction=false" in done.stdout


def test_queues_in_files_are_mended_beside_a_dledger_log(tmp_path: Path) -> None:
    """Whoever is to have them in a RocksDB besides makes that: brokers of 5.3 do not know the option."""
    root = stores.unpack("5.3.3-dledger", tmp_path)
    shutil.rmtree(next((root / "consumequeue").iterdir()))
    layout = Layout.open(root, BrokerConfig({"rocksdbCQDoubleWriteEnable": "true"}))
    for found in (recovery.analyze(layout).plan, analyze(layout, QUEUES, None, NOW_MS).plan):
        assert found is not None and found.edits
        assert not [edit.path for edit in found.edits if "rocksdb" in edit.path]


def test_a_damaged_log_comes_first(tmp_path: Path) -> None:
    layout = opened(HYBRID, tmp_path)
    file = next(layout.commit_log_directories[0].iterdir())
    data = bytearray(file.read_bytes())
    data[2000:2200] = b"x" * 200
    file.write_bytes(data)
    shutil.rmtree(layout.consume_queue / "TopicA")
    with pytest.raises(Refused, match="log must be recovered first"):
        examined(layout)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["5.5.0-rocksdb-killed", HYBRID])
def test_one_repair_of_everything_mends_log_and_database(name: str, tmp_path: Path) -> None:
    """A second one, and a recovery, find nothing left."""
    layout = opened(name, tmp_path)
    path = min((layout.root / "commitlog").iterdir())
    data = bytearray(path.read_bytes())
    data[5000:5100] = bytes(100)
    path.write_bytes(data)
    request = chosen((), ())
    found = analyze(again(layout), request, None, NOW_MS)
    apply(again(layout), found.plan, lambda: replan(again(layout), found.request), Files())
    assert analyze(again(layout), request, None, NOW_MS).nothing_to_do
    after = said_of(layout.root, layout.broker_config, "5.5.1")
    assert after.found is not None and after.found.plan is not None
    assert not after.found.plan.edits and not errors(layout)


@pytest.mark.parametrize("name", [ROCKS, FILES])
def test_without_the_extra_one_line_says_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = stores.unpack(name, tmp_path)
    before = everything(root)
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    done = run_here(["repair", str(root), "--queues", "--as", "rocksdb", "--apply", "--yes"])
    assert done.code == 5
    assert done.stderr.count("\n") == 1
    assert "pip install 'mqstore[rocksdb]'" in done.stderr
    assert everything(root) == before


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["rocks", "hybrid"])
def test_nothing_to_do_behind_a_recovery(kind: str, tmp_path: Path) -> None:
    """Units of tombstones have no tag, and LMQs keep those that name them."""
    case = case_of(f"5.5.1-{kind}-halt-1/file_missing_middle")
    root, config = damaged(case, tmp_path)
    settings = [f"--set={name}={value}" for name, value in config.items()]
    done = run_here(["recover", str(root), "--apply", "--yes", *settings])
    assert done.code == 1 and "29 messages lost" in done.stdout, done
    plan = examined(Layout.open(root, config)).plan
    assert [(edit.kind, edit.path, edit.reason) for edit in plan.edits] == []
    found_then = said_of(root, config, case["version"]).verdict.findings
    assert [f.message for f in found_then if "every pull there fails" in f.message] == []


@pytest.mark.parametrize("name", [ROCKS, MIGRATED])
def test_a_queue_that_is_not_there(name: str, tmp_path: Path) -> None:
    layout = opened(name, tmp_path)
    with pytest.raises(NotFound, match="no queue nosuch"):
        analyze(layout, chosen([], (("nosuch", None),)), None, NOW_MS)
    analyze(layout, chosen([], (("TopicA", 0),)), None, NOW_MS)


def test_what_the_command_says(tmp_path: Path) -> None:
    root = stores.unpack(MIGRATED, tmp_path)
    shown = run_here(["repair", str(root), "--queues"])
    assert shown.code == 3
    assert "1 unit missing" in shown.stdout
    done = run_here(["repair", str(root), "--queues", "--as", "rocksdb", "--apply", "--yes"])
    assert done.code == 0, done.stderr
    assert "storeType=defaultRocksDB" in done.stdout
    for words in (["--as", "files"], ["--queues", "--index", "--as", "files"], ["--all", "--as", "files"]):
        assert run_here(["repair", str(root), *words]).code == 2


@pytest.mark.parametrize("name", ["4.9.7-clean-index", "5.1.4-clean"])
def test_brokers_without_such_queues_keep_their_files(name: str, tmp_path: Path) -> None:
    layout = as_kind(opened(name, tmp_path), QueueStoreKind.ROCKSDB)
    with pytest.raises(Refused, match=r"from 5\.3 on they do") as refused:
        examined(layout, QueueStoreKind.ROCKSDB)
    assert "--broker-version" not in str(refused.value)


def test_a_broker_version_without_such_queues(tmp_path: Path) -> None:
    layout = as_kind(opened(FILES, tmp_path), QueueStoreKind.ROCKSDB)
    with pytest.raises(Refused, match=r"brokers of 4\.9 do not read"):
        refuse_kind(layout, QueueStoreKind.ROCKSDB, "4.9")
    refuse_kind(layout, QueueStoreKind.ROCKSDB, "5.3")


def test_a_guess_that_spans_both_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = as_kind(opened(FILES, tmp_path), QueueStoreKind.ROCKSDB)
    guess = Generation("5.3", "", ("5.1", "5.3"))
    monkeypatch.setattr(parts, "generation_of", lambda _: guess)
    with pytest.raises(Refused, match=r"--broker-version 5\.3 or later"):
        refuse_kind(layout, QueueStoreKind.ROCKSDB, None)


def test_what_comes_first_is_for_the_store_as_it_is(tmp_path: Path) -> None:
    layout = opened(ROCKS, tmp_path)
    file = next(layout.commit_log_directories[0].iterdir())
    data = bytearray(file.read_bytes())
    data[2000:2200] = b"x" * 200
    file.write_bytes(data)
    with pytest.raises(Refused, match=r"recover .* --apply") as refused:
        examined(as_kind(layout, QueueStoreKind.FILES), QueueStoreKind.FILES)
    assert "storeType=default " not in f"{refused.value} "
    assert "rocksdbCQDoubleWriteEnable" not in str(refused.value)


def test_a_file_made_in_advance_is_in_order(tmp_path: Path) -> None:
    """A broker that was killed leaves one behind the end of its log."""
    layout = opened(MIGRATED, tmp_path)
    log = layout.commit_log_directories[0]
    size = next(log.iterdir()).stat().st_size
    (log / f"{size:020}").write_bytes(bytes(size))
    layout.abort.touch()
    carried_out(layout)
    assert (log / f"{size:020}").is_file() and layout.abort.exists()
    assert not errors(layout)


def test_a_store_in_use_is_told_first(tmp_path: Path) -> None:
    layout = opened(ROCKS, tmp_path)
    layout.abort.touch()
    with other_process(layout.lock):
        done = run_here(["repair", str(layout.root), "--queues", "--as", "files", "--apply", "--yes"])
    assert "in use" in done.stderr


def test_garbage_behind_the_log_is_no_part_of_it(tmp_path: Path) -> None:
    """A start cuts it off, and no unit names anything in it."""
    layout = opened("5.3.3-rocksdb", tmp_path)
    end = commit_log_of(layout).end().position
    file = max(layout.commit_log_directories[0].iterdir())
    with file.open("r+b") as log:
        log.seek(end - int(file.name) + 1000)
        log.write(b"garbage" * 40)
    assert examined(layout).nothing_to_do


def test_a_lost_record_that_a_queue_names_comes_first(tmp_path: Path) -> None:
    """The last one is torn: `recover` puts a tombstone in its place, which a move to a RocksDB would not."""
    layout = opened("5.5.1-clean", tmp_path)
    last = max(row["physical_offset"] for row in stores.messages("5.5.1-clean"))
    file = max(layout.commit_log_directories[0].iterdir())
    with file.open("r+b") as log:
        log.seek(last - int(file.name))
        log.write(bytes(8))
    with pytest.raises(Refused, match="log must be recovered first"):
        examined(layout, QueueStoreKind.ROCKSDB)


@pytest.mark.parametrize("scenario", ["stale-tail", "torn-properties"])
@pytest.mark.parametrize(("name", "kind"), [(FILES, QueueStoreKind.ROCKSDB), (ROCKS, QueueStoreKind.FILES)])
def test_the_end_of_the_log_comes_first_in_both_directions(
    name: str, kind: QueueStoreKind, scenario: str, tmp_path: Path
) -> None:
    """A start with a RocksDB hides messages behind stale records that a start with files serves; torn properties, which
    brokers take for good, change their tags in a recovery.
    """
    layout, root = opened(name, tmp_path), tmp_path / "damaged"
    sizes = {key: text for key, text in layout.broker_config.items() if key.startswith("mappedFileSize")}
    run_here(["damage", str(layout.root), "--to", str(root), "-s", scenario, *settings(sizes)])
    found = as_kind(Layout.open(root, BrokerConfig(sizes)), kind)
    with pytest.raises(Refused, match=r"log must be recovered first.* recover .* --apply"):
        examined(found, kind)
    assert run_here(["recover", str(root), "--apply", "--yes", *settings(sizes)]).code == 0
    assert examined(found, kind).plan.edits


def test_what_is_left_behind_a_move_goes_with_the_new_options(tmp_path: Path) -> None:
    """The broker.conf that was named is still the old one: by that the queues would be made in files again."""
    root = str(stores.unpack("5.3.3-killed", tmp_path))
    done = run_here(["repair", root, "--queues", "--as", "rocksdb", "--set", "storeType=default", "--apply", "--yes"])
    (command,) = (line.removeprefix("Next: ") for line in done.stdout.splitlines() if line.startswith("Next: "))
    assert command.startswith("mqstore recover") and "--set storeType=defaultRocksDB" in command
    assert run_here([*shlex.split(command)[1:], "--yes"]).code == 0
    assert not list(queue_directories(Path(root) / "consumequeue"))
    assert run_here(["verify", root, "--set", "storeType=defaultRocksDB"]).code == 0
