"""Every row of the decision table is reached by a store made for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.formats.checkpoint import CHECKPOINT, FIELDS
from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.store.broker.profiles import VERSIONS
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.queues.references import commit_log_of
from mqstore.store.recover.cases import CASES
from mqstore.store.recover.recovery import Recovery, analyze
from mqstore.store.verify.start import findings_of_start

from ... import recovery_cases, stores
from ...recovery_cases import CONFIG
from ..put.faults import CountingFiles, Killed, KilledFiles
from .recovered import recover

DOCUMENT = Path(__file__).parents[3] / "docs" / "recovery.md"
TABLE_MARK = "<!-- store/recover/cases.py -->"
LOG_FILE = 8192
QUEUE = "consumequeue/TopicA/0"
EXT = "consumequeue_ext/TopicA/0"

Make = Callable[[Path], tuple[Path, str]]


def kind(name: str, version: str = "", exit: str = "") -> Make:
    """A measured kind of damage."""

    def make(work: Path) -> tuple[Path, str]:
        case = recovery_cases.case_of(name, version, exit)
        return recovery_cases.damaged(case, work), case["version"]

    return make


def spoilt(base: str, spoil: Callable[[Path], object]) -> Make:
    """A good store, and what is done to it."""

    def make(work: Path) -> tuple[Path, str]:
        root = work / "store"
        shutil.copytree(recovery_cases.base(base, work), root)
        spoil(root)
        return root, next(part for part in base.split("-") if part[0].isdigit())

    return make


def ext(spoil: Callable[[Path], object]) -> Make:
    """A good store of 4.9 with consumequeue_ext."""
    return spoilt("cqext-4.9.7-halt-2", spoil)


def sized(name: str, size: int) -> Callable[[Path], object]:
    """A file of that size, all zeros."""

    def spoil(root: Path) -> None:
        with (root / name).open("wb") as file:
            file.truncate(size)

    return spoil


def cut_off(root: Path) -> None:
    """A recovery that ended in the middle of its changes."""
    counted = root.with_name("counted")
    shutil.copytree(root, counted)
    files = CountingFiles()
    recover(counted, CONFIG, "5.3.3", files)
    with pytest.raises(Killed):
        recover(root, CONFIG, "5.3.3", KilledFiles(len(files.steps) - 12))


def no_unit(root: Path) -> None:
    """One queue is left; its only file does not begin at 0 and has no unit."""
    shutil.rmtree(root / "consumequeue")
    (root / QUEUE).mkdir(parents=True)
    sized(f"{QUEUE}/00000000000000000400", 400)(root)


def topic_with_nul(root: Path) -> None:
    """The first character of the last record's topic becomes NUL."""
    batches = [i for i in commit_log_of(Layout.open(root, CONFIG)).scan() if isinstance(i, Batch)]
    last = batches[-1].take(slice(-1, None))
    topic = int(last.columns.ragged("topic").start[0] - last.columns.starts[0])
    position = int(last.position[0]) + topic
    with (root / "commitlog" / f"{position // LOG_FILE * LOG_FILE:020d}").open("r+b") as file:
        file.seek(position % LOG_FILE)
        file.write(b"\0")
    (root / "checkpoint").unlink()


def record_of_no_array(root: Path) -> None:
    """The size field of the first record of the last file becomes the largest number."""
    with last_file(root).open("r+b") as file:
        file.write(b"\x7f\xff\xff\xff")


def short_queue_file(root: Path) -> None:
    """The last file of a queue is cut short."""
    sized(f"{QUEUE}/{max(p.name for p in (root / QUEUE).iterdir())}", 100)(root)


def last_file(root: Path) -> Path:
    """The last log file that is not all zeros."""
    return max(path for path in (root / "commitlog").iterdir() if any(path.read_bytes()))


def records_never_written(root: Path) -> None:
    """The last records of the log did not reach the disk, their units did."""
    batches = [i for i in commit_log_of(Layout.open(root, CONFIG)).scan() if isinstance(i, Batch)]
    begin = int(batches[-1].position[-3]) % LOG_FILE
    with last_file(root).open("r+b") as file:
        file.seek(begin)
        file.write(bytes(LOG_FILE - begin))


def full_to_the_end(root: Path) -> None:
    """Killed when the last file was full, before the next one was made."""
    last_file(root).unlink()
    recover(root, CONFIG, "5.3.3")
    (root / "abort").touch()


def timer_file_without_entry(root: Path) -> None:
    """A file of the timer log at its end that has no entry; brokers since 5.4 pass it."""
    recover(root, CONFIG, "5.5.0")
    last = max(int(path.name) for path in (root / "timerlog").iterdir())
    sized(f"timerlog/{last + 600:020d}", 600)(root)


def dead_unit(root: Path) -> None:
    """Behind the end of a queue, and a zero unit, stands an old one."""
    path = max((root / QUEUE).iterdir())
    units = path.read_bytes()
    end = len(units.rstrip(b"\0")) // UNIT_BYTES * UNIT_BYTES + UNIT_BYTES
    with path.open("r+b") as file:
        file.seek(end + UNIT_BYTES)
        file.write(units[:UNIT_BYTES])


MADE: dict[str, Make] = {
    "interrupted-recovery": spoilt("5.3.3-halt-2", cut_off),
    "no-commit-log": kind("files_missing_all"),
    "foreign-name": kind("extra_backup"),
    "wrong-length": kind("short_last_half"),
    "directory": spoilt("4.9.7-clean-1", lambda root: (root / "commitlog/old").mkdir()),
    "empty-last-file": kind("short_next_zero", "4.9"),
    "queue-foreign-name": spoilt("4.9.7-clean-1", sized(f"{QUEUE}/copy", 400)),
    "queue-wrong-length": spoilt("5.3.3-clean-1", short_queue_file),
    "queue-directory": spoilt("4.9.7-clean-1", lambda root: (root / QUEUE / "old").mkdir()),
    "queue-empty-last-file": spoilt("4.9.7-clean-1", sized(f"{QUEUE}/00000000000000004000", 0)),
    "queue-type": kind("wrong_directory"),
    "ext-foreign-name": ext(sized(f"{EXT}/copy", 400)),
    "ext-wrong-length": ext(sized(f"{EXT}/00000000000000000000", 100)),
    "ext-directory": ext(lambda root: (root / EXT / "old").mkdir()),
    "ext-empty-last-file": kind("ext_empty_last", "4.9"),
    "ext-unreadable": kind("ext_size_huge"),
    "timer-foreign-name": spoilt("timer-5.3.3-clean-1", sized("timerlog/copy", 600)),
    "timer-wrong-length": kind("log_short_last"),
    "timer-wheel-length": kind("wheel_short"),
    "timer-log-end": spoilt("timer-5.3.3-clean-1", sized("timerlog/00000000000000003600", 600)),
    "record-too-large": spoilt("4.9.7-clean-1", record_of_no_array),
    "queue-without-unit": spoilt("5.1.4-clean-1", no_unit),
    "files-hidden": kind("short_middle", "4.3"),
    "odd-number": kind("extra_short_number"),
    "dispatch-waits": kind("file_missing_last", "4.9", "halt"),
    "topic-not-a-name": spoilt("5.3.3-halt-1", topic_with_nul),
    "stale-records": kind("stale_tail"),
    "ghost-record": kind("torn_header", "4.3", "halt"),
    "damage-cuts": kind("body_crc_middle", "5.4"),
    "missing-file": kind("file_missing_middle"),
    "torn-tail": kind("torn_body"),
    "last-file-missing": spoilt("5.3.3-clean-1", lambda root: last_file(root).unlink()),
    "log-shorter": spoilt("5.3.3-clean-1", records_never_written),
    "queues-incomplete": kind("cq_queue_missing"),
    "queues-behind": kind("cq_all_missing", "5.3", "clean"),
    "queues-ahead": spoilt("5.3.3-clean-1", dead_unit),
    "index-incomplete": kind("index_missing_last"),
    "damage-unseen": kind("flip_body_first"),
    "wrong-header": kind("queue_offset_middle"),
    "spare-file": kind("extra_next_file"),
    "preallocated-zeros": kind("abort_toggled"),
    "killed": spoilt("5.3.3-clean-1", full_to_the_end),
    "beside-the-log": spoilt("timer-5.5.0-halt-2", timer_file_without_entry),
    "in-order": kind("checkpoint_zero", exit="clean"),
}


#: Only this policy finds them.
OF_KEEP = ("wrong-header", "last-file-missing")
#: Made in tests of their own: their stores have other configurations, or queues in a RocksDB.
IN_DATABASE = {label for label in (case.label for case in CASES) if label.startswith("queue-database")}
#: Of a log in several directories: tests/store/plan/test_normalize.py.
SEVERAL = "log-directory-missing"
POISON, DEAD_TAIL, OPTIONS, DUPLICATION = "poison-record", "dead-tail", "queue-options", "no-dup-info"
#: tests/store/recover/test_rocks.py.
UNSERVED, IN_BATCHES = "compaction-unserved", "batches-unserved"
UNCOMPACTED = "compaction-incomplete"


IN_ENTRIES = ("dledger-hole", "dledger-too-small", "dledger-index-length")
"""Of a DLedger log: tests/store/plan/test_entries.py."""


def test_every_row_is_made() -> None:
    elsewhere = {POISON, DEAD_TAIL, *IN_DATABASE, OPTIONS, DUPLICATION, UNSERVED, IN_BATCHES, UNCOMPACTED, SEVERAL}
    elsewhere |= {*IN_ENTRIES}
    assert {*MADE, *elsewhere} == {case.label for case in CASES}


def examined(make: Make, work: Path, policy: Policy) -> Recovery:
    root, version = make(work)
    return analyze(Layout.open(root, CONFIG), version, options=RecoveryOptions(policy))


@pytest.mark.few(20)
@pytest.mark.parametrize("label", MADE)
def test_a_row(label: str, tmp_path: Path) -> None:
    policy = Policy.KEEP if label in OF_KEEP else Policy.BROKER
    found = examined(MADE[label], tmp_path, policy)
    assert found.prediction.case.label == label
    shown = found.to_json()
    assert shown["prediction"]["case"] == label
    if shown["plan"] is not None:
        assert shown["plan"]["case"] == label
    of_log = ("foreign-name", "wrong-length", "directory", "record-too-large")
    refuses = label.startswith(("queue-", "ext-", "timer-")) or label in of_log
    assert (found.prediction.outcome == "refuses") == (refuses or label == "empty-last-file")
    assert (found.prediction.outcome == "hangs") == (label == "dispatch-waits")


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_size_that_no_array_has(version: str, killed: bool, tmp_path: Path) -> None:
    """Up to 5.3.1 a broker allocates it; later ones look first whether the file has so many bytes."""
    root, _ = spoilt(f"{'4.3.1' if version.startswith('4.3') else '4.9.7'}-clean-1", record_of_no_array)(tmp_path)
    if killed:
        (root / "abort").touch()
    found = analyze(Layout.open(root, CONFIG), version, options=RecoveryOptions(Policy.KEEP))
    dies = version < "5.3"
    assert (found.prediction.outcome == "refuses") == dies
    assert ("OutOfMemoryError at the record at " in (found.prediction.reason or "")) == dies
    _, applied = recover(root, CONFIG, version)
    after = analyze(Layout.open(root, CONFIG), version, options=RecoveryOptions(Policy.KEEP))
    assert applied.session and after.prediction.starts and after.nothing_to_do


FUTURE_MS = 1 << 45


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("policy", Policy)
def test_the_file_where_the_recovery_begins_goes(version: str, policy: Policy, tmp_path: Path) -> None:
    """Its name is odd: it sorts behind the others, begins before them, and the log ends in it."""
    root, _ = spoilt("4.9.7-halt-2", lambda root: None)(tmp_path)
    first = min((root / "commitlog").iterdir())
    first.rename(first.with_name("1"))
    times = {str(field.name): FUTURE_MS for field in FIELDS.subcons}
    (root / "checkpoint").write_bytes(CHECKPOINT.build(times | {"index_msg_timestamp": 0}))
    found = analyze(Layout.open(root, CONFIG), version, options=RecoveryOptions(policy))
    assert found.prediction.start_file == "commitlog/1"
    assert found.prediction.case.label == "odd-number"


def test_a_record_that_cannot_be_dispatched(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-lmq", tmp_path)
    config = BrokerConfig(stores.config("5.3.3-lmq", root))
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    path = min((root / "commitlog").iterdir())
    name = b"INNER_MULTI_QUEUE_OFFSET\x01"
    at = path.read_bytes().index(name) + len(name)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"x")
    found = analyze(Layout.open(root, config), "5.3.3")
    assert (found.prediction.case.label, found.prediction.outcome) == (POISON, "refuses")
    assert found.plan is not None
    assert not found.plan.lost.messages
    recover(root, config, "5.3.3")
    assert analyze(Layout.open(root, config), "5.3.3").nothing_to_do


def test_records_that_an_earlier_start_cut_off(tmp_path: Path) -> None:
    name = "4.9.7-killed-bit-restarted"
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig(stores.config(name, root))
    found = analyze(Layout.open(root, config))
    assert found.prediction.case.label == DEAD_TAIL
    assert not found.harmful
    recover(root, config, "4.9.7")
    assert analyze(Layout.open(root, config)).nothing_to_do


@pytest.mark.parametrize("killed", [False, True])
def test_records_that_duplication_mode_rejects(killed: bool, tmp_path: Path) -> None:
    """No plan adds DUP_INFO, whatever else it does; where a record is damaged, the damage is what ends the log."""
    root, version = spoilt(f"5.3.3-{'halt' if killed else 'clean'}-1", lambda root: None)(tmp_path)
    layout = Layout.open(root, CONFIG.with_set(["duplicationEnable=true"]))
    keep = RecoveryOptions(Policy.KEEP)
    found = analyze(layout, version, options=keep)
    assert found.prediction.case.label == DUPLICATION and found.not_by_files
    assert found.prediction.lost.messages and found.plan is not None and bool(found.plan.edits) >= killed
    [told] = [finding for finding in findings_of_start(found) if finding.code == "I-181"]
    assert told.repair == ""
    with (root / "commitlog" / f"{found.prediction.log_end:020d}").open("r+b") as file:
        file.seek(88)
        file.write(b"damage")
    hurt = analyze(layout, version, options=keep)
    assert hurt.prediction.case.label == "damage-cuts" and not hurt.not_by_files


@pytest.mark.parametrize(("gone", "left"), [("compaction", 15), ("compaction/compactionCq/state/0", None)])
def test_a_compaction_topic_without_its_log(gone: str, left: int | None, tmp_path: Path) -> None:
    """Real brokers serve none of its messages, and dispatch none again; from its records the queue is made."""
    name = "5.3.3-compaction"
    root = stores.unpack(name, tmp_path)
    shutil.rmtree(root / gone)
    layout = Layout.open(root, BrokerConfig(stores.config(name, root)))
    found = analyze(layout)
    assert found.prediction.readable == (left or 560)
    assert (found.prediction.case.label == UNCOMPACTED) is (left is not None) is found.harmful
    told = [finding for finding in findings_of_start(found) if finding.code == "I-182"]
    assert [(one.count, one.repair) for one in told] == ([(545, "compaction")] if left else [])


def test_labels_are_unique() -> None:
    assert len({case.label for case in CASES}) == len(CASES)


def table() -> str:
    """The decision table as Markdown."""
    rows = [
        "| case | found | a broker | `--policy broker` | `--policy keep` | bugs, findings |",
        "|---|---|---|---|---|---|",
    ]
    for case in CASES:
        names = ", ".join((*case.bugs, *case.codes))
        plans = f"{case.plan} | {case.keep or 'the same'}"
        rows.append(f"| `{case.label}` | {case.found} | {case.broker} | {plans} | {names} |")
    return "\n".join(rows) + "\n"


def test_the_documentation_has_the_table(rewrite: bool) -> None:
    head, _, old = DOCUMENT.read_text(encoding="utf-8").partition(f"{TABLE_MARK}\n")
    if rewrite:
        DOCUMENT.write_text(f"{head}{TABLE_MARK}\n{table()}", encoding="utf-8")
        old = table()
    assert old == table(), "run pytest with --rewrite"
