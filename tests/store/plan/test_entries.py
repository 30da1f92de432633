"""Recovering a DLedger log: what is left is in order, nothing good is lost, all can be taken back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.formats.dledger import HEAD, HEADER_BYTES
from mqstore.formats.index_file import HEADER
from mqstore.formats.index_file import HEADER_BYTES as INDEX_BYTES
from mqstore.formats.message import MESSAGE
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files, confine
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.library import Store
from mqstore.store.log.batch import Batch
from mqstore.store.plan.entries import _rising
from mqstore.store.plan.observer import Policy, RecoveryOptions, uncommitted_from
from mqstore.store.plan.plan import Plan
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.units import UNIT_DTYPE
from mqstore.store.recover.recovery import Recovery, analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.session.undo import session_to_undo, undo
from mqstore.store.start.log import switches_of
from mqstore.store.start.simulate import simulate
from mqstore.store.verify.run import verify
from tests import stores
from tests.dledger_mishaps import FILE_BYTES, STORE, damaged, entry_starts
from tests.recovery_cases import sparse_copy
from tests.slices import pick

from ..put.faults import CountingFiles, Killed, KilledFiles
from ..verify.mutations.edit import records, set_field

SEEDS = 120
VERSION = "5.3"
DATA = "dledger-n0/data"
PAGE_BYTES = 4096


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stores.unpack(STORE, tmp_path_factory.mktemp("dledger"))


def found(root: Path, policy: Policy = Policy.KEEP) -> Recovery:
    return analyze(Layout.open(root), VERSION, options=RecoveryOptions(policy), jobs=1)


def recovered(root: Path, policy: Policy = Policy.KEEP, files: Files | None = None) -> Recovery:
    """Carry a recovery out, and look again."""
    layout, files = Layout.open(root), files or Files()
    plan = analyze(layout, VERSION, options=RecoveryOptions(policy), jobs=1).plan
    assert plan is not None
    confine(files, layout)
    apply(layout, plan, lambda: plan, files)
    return found(root, policy)


def without_page(base: Path, root: Path, start: int, page: int) -> Path:
    """A copy of a store at `root`, with zeros in a page of the data file that begins at `start`."""
    shutil.copytree(base, root, copy_function=sparse_copy)
    with (root / DATA / f"{start:020d}").open("r+b") as file:
        file.seek(page * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))
    return root


def bodies(root: Path) -> dict[int, bytes]:
    """Every good record of the log by its position, but for tombstones."""
    rows: dict[int, bytes] = {}
    with commit_log_of(Layout.open(root)).queue as queue:
        log = commit_log_of(Layout.open(root), queue)
        for item in log.scan():
            if isinstance(item, Batch) and item.body_crc_ok is not None:
                texts = item.columns.ragged("body").tolist()
                good = item.body_crc_ok.tolist()
                pairs = zip(item.position.tolist(), texts, good, strict=True)
                rows |= {at: text for at, text, fits in pairs if fits}
    return rows


def content(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file: its time, and its bytes but for the holes of large ones."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and ".mqstore" not in path.parts:
            with path.open("rb") as file:
                found[str(path)] = (path.stat().st_mtime_ns, file.read(1 << 20))
    return found


def _seeds(fast: tuple[int, ...], name: str) -> list[Any]:
    return [*fast, *(pytest.param(n, marks=pytest.mark.slow) for n in pick(range(SEEDS), name))]


@pytest.mark.parametrize("seed", _seeds((5, 30), "damaged DLedger logs"))
def test_nothing_good_is_given_up(seed: int, base: Path, tmp_path: Path) -> None:
    """A start leaves it alone then, every good record is where it was, and its undo gives each byte back."""
    root = tmp_path / "store"
    names = damaged(seed, base, root)
    before, good = content(root), bodies(root)
    again = recovered(root)
    assert again.nothing_to_do, (names, again.plan)
    assert not again.harmful, (names, again.prediction)
    assert again.prediction.starts
    left = bodies(root)
    assert {at: left[at] for at in good} == good
    layout = Layout.open(root)
    files = Files()
    confine(files, layout)
    if layout.journal.exists():
        undo(layout, session_to_undo(layout), files)
    assert content(root) == before


@pytest.mark.parametrize("seed", _seeds((0,), "DLedger logs, as the broker"))
def test_as_the_broker_ends_it(seed: int, base: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    names = damaged(seed, base, root)
    first = found(root, Policy.BROKER)
    if first.plan is None:
        assert first.refusal is not None
        assert not first.prediction.starts
        return
    again = recovered(root, Policy.BROKER)
    assert again.nothing_to_do, names
    assert again.prediction.log_end == first.prediction.log_end


@pytest.mark.slow
def test_a_recovery_that_is_killed_is_gone_on_with(base: Path, tmp_path: Path) -> None:
    """At each of its steps; it ends as one that was not killed."""
    whole, counting = tmp_path / "whole", CountingFiles()
    damaged(30, base, whole)
    recovered(whole, files=counting)
    wanted = {name.removeprefix(str(whole)): data for name, (_, data) in content(whole).items()}
    for step in pick(range(len(counting.steps) - 2), "kills of a DLedger recovery"):
        root = tmp_path / "killed"
        shutil.rmtree(root, ignore_errors=True)
        damaged(30, base, root)
        with pytest.raises(Killed):
            recovered(root, files=KilledFiles(step))
        assert recovered(root).nothing_to_do
        mine = {name.removeprefix(str(root)): data for name, (_, data) in content(root).items()}
        assert mine.keys() == wanted.keys()
        assert {n: mine[n] for n in mine if "/data/" in n} == {n: wanted[n] for n in wanted if "/data/" in n}


def hole(root: Path) -> None:
    (root / DATA / f"{FILE_BYTES:020d}").unlink()


def first_head(root: Path) -> None:
    with (root / DATA / f"{0:020d}").open("r+b") as file:
        file.write(bytes(8))


def swapped(root: Path) -> None:
    """The first two files have each other's name: none of their entries is where it says."""
    first, second = (root / DATA / f"{start:020d}" for start in (0, FILE_BYTES))
    first.rename(root / "first")
    second.rename(first)
    (root / "first").rename(second)


def short_index(root: Path) -> None:
    with (root / "dledger-n0" / "index" / f"{0:020d}").open("r+b") as file:
        file.truncate(4096)


@pytest.mark.parametrize(
    ("label", "mishap"),
    [
        ("dledger-hole", hole),
        ("dledger-too-small", first_head),
        ("dledger-too-small", swapped),
        ("dledger-index-length", short_index),
    ],
)
def test_what_keeps_a_start_from_coming_up(
    label: str, mishap: Callable[[Path], None], base: Path, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    shutil.copytree(base, root, copy_function=sparse_copy)
    mishap(root)
    first = found(root)
    assert first.prediction.case.label == label
    assert not first.prediction.starts
    assert first.plan is not None
    again = recovered(root)
    assert again.nothing_to_do
    assert again.prediction.starts
    outcome = simulate(Snapshot.of(Layout.open(root)), profile_of(VERSION))
    assert {str(n): q.max_offset for n, q in outcome.queues.items()} == {
        name: row["max_offset"] for name, row in stores.truth(STORE)["queues"].items()
    }


def index(root: Path) -> None:
    shutil.rmtree(root / "dledger-n0/index")


def state(root: Path) -> None:
    (root / "dledger-n0/checkpoint").unlink()


def queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


LAST_FILE = {"TopicA": 9, "TopicB": 2}


@pytest.mark.parametrize(
    ("also", "wanted", "named"),
    [
        ((), LAST_FILE, 11),
        ((index, state), LAST_FILE, 11),
        ((queues, state), {"?": 11}, 11),
        ((queues, index), {"?": 11}, 0),
    ],
)
def test_entries_lost_at_the_end_are_counted(
    also: tuple[Callable[[Path], None], ...], wanted: dict[str, int], named: int, base: Path, tmp_path: Path
) -> None:
    """The last file is gone: units of queues, of the DLedger index, or the member's checkpoint tell of its entries."""
    root = tmp_path / "store"
    shutil.copytree(base, root, copy_function=sparse_copy)
    (root / DATA / f"{2 * FILE_BYTES:020d}").unlink()
    shutil.rmtree(root / "index")
    for mishap in also:
        mishap(root)
    first = found(root)
    first.name_lost()
    plan = first.to_json()["plan"]
    assert first.harmful and first.plan is not None
    assert (first.plan.lost.messages, first.plan.lost.by_topic()) == (11, wanted)
    assert (len(plan["lost_messages"]), plan["lost_messages_left_off"]) == (named, 11 - named)
    assert not first.plan.touches("data")
    again = recovered(root)
    assert again.nothing_to_do and not again.harmful


def test_a_start_that_is_followed_loses_the_damaged_ones_too(base: Path, tmp_path: Path) -> None:
    root = without_page(base, tmp_path / "store", FILE_BYTES, 1)
    kept, followed = found(root).plan, found(root, Policy.BROKER).plan
    assert kept is not None and followed is not None and kept.lost_messages > 5
    behind = [at for at in bodies(root) if at >= followed.log_end]
    assert len(behind) > 50 and followed.lost_messages == kept.lost_messages + len(behind)


def test_an_entry_of_nobody_is_a_lost_message(base: Path, tmp_path: Path) -> None:
    """Nothing tells its queue, but an entry is one message: a filler takes its place."""
    root = tmp_path / "store"
    shutil.copytree(base, root, copy_function=sparse_copy)
    queues(root)
    last = entry_starts(sorted((root / DATA).iterdir()))[195]  # of TopicB/0
    with (root / DATA / f"{2 * FILE_BYTES:020d}").open("r+b") as file:
        file.seek(last % FILE_BYTES + HEADER_BYTES)
        file.write(bytes(100))
    first = found(root)
    assert first.plan is not None and first.plan.lost.by_topic() == {"?": 1}
    assert recovered(root).nothing_to_do


@pytest.mark.parametrize("text", ["committedIndex=--5\nendIndex=1", "committedIndex=\u00b2\nendIndex=300"])
def test_a_state_that_is_no_number_proves_nothing(text: str, base: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(base, root, copy_function=sparse_copy)
    (root / "dledger-n0/checkpoint").write_text(text, encoding="latin-1")
    first = found(root)
    assert first.plan is not None and not first.plan.lost.messages and first.plan.edits
    with Store(root) as store:
        assert [f.code for f in verify(store).findings if f.severity >= Severity.ERROR] == ["I-053"]


@pytest.mark.parametrize("text", ["", "\0" * 50, "committedIndex=\nendIndex=1"])
def test_a_state_that_names_no_committed_entry_is_as_none_at_all(text: str, base: Path, tmp_path: Path) -> None:
    """A file whose content a power loss took: DLedger starts without it."""
    root = tmp_path / "store"
    shutil.copytree(base, root, copy_function=sparse_copy)
    (root / "dledger-n0/checkpoint").write_text(text)
    first = found(root)
    assert first.plan is not None and not [edit for edit in first.plan.edits if "I-053" in edit.codes]
    with Store(root) as store:
        assert not [f for f in verify(store).findings if f.severity >= Severity.ERROR]


def test_what_was_recovered_is_in_order_for_verify(base: Path, tmp_path: Path) -> None:
    root = without_page(base, tmp_path / "store", FILE_BYTES, 1)
    recovered(root)
    with Store(root) as store:
        verdict = verify(store)
    assert not [f for f in verdict.findings if f.severity >= Severity.ERROR]


def test_messages_that_units_name_take_no_place_of_others(base: Path, tmp_path: Path) -> None:
    """Of eleven entries in a page units name nine; the two of a queue that is lost have the places that are left."""
    root = without_page(base, tmp_path / "store", 0, 5)
    shutil.rmtree(root / "consumequeue/TopicA/1")
    first = found(root)
    assert first.plan is not None
    lost = {str(share.queue): (share.first_offset, share.last_offset) for share in first.plan.lost}
    assert lost == {"TopicA/0": (11, 12), "TopicA/1": (8, 9), "TopicB/0": (19, 25)}
    assert first.plan.lost.messages == 11
    recovered(root)
    with Store(root) as store:
        assert not [f for f in verify(store).findings if f.severity >= Severity.ERROR]


def topic_a(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/TopicA")


def message_index(root: Path) -> None:
    shutil.rmtree(root / "index")


PLACES = [(58475, 263), (58786, 285), (59119, 226)]


@pytest.mark.parametrize(
    ("gone", "places"),
    [
        ((topic_a,), PLACES),
        ((topic_a, message_index), [PLACES[0], (58786, 255), (59089, 256)]),
        ((queues, message_index), [(58475, 258), (58781, 258), (59087, 258)]),
    ],
    ids=["TopicA", "TopicA, index", "queues, index"],
)
def test_entries_of_which_something_is_known(
    gone: tuple[Callable[[Path], None], ...], places: list[tuple[int, int]], base: Path, tmp_path: Path
) -> None:
    """Units of one queue and items of the message index tell where entries were that the DLedger index has lost; what
    nothing tells of has room enough, so that no unit before stands in its place.
    """
    root = tmp_path / "store"
    shutil.copytree(base, root, copy_function=sparse_copy)
    for mishap in (index, *gone):
        mishap(root)
    begin, end = PLACES[0][0] - HEADER_BYTES, sum(PLACES[-1])
    with (root / DATA / f"{FILE_BYTES:020d}").open("r+b") as file:
        file.seek(begin % FILE_BYTES)
        file.write(bytes(end - begin))
    first = found(root)
    first.name_lost()
    rows = first.to_json()["plan"]["lost_messages"]
    assert [(row["position"], row["size"]) for row in rows] == places
    assert all(row["key_hashes"] for row in rows) == (message_index not in gone)
    offsets = {(row["topic"], row["queue_offset"]) for row in rows}
    assert offsets == {("TopicB", 66), ("TopicA", 25), ("TopicA", 26)}
    assert first.plan is not None and first.plan.lost.messages == 3
    assert recovered(root).nothing_to_do
    with Store(root) as store:
        assert not [f for f in verify(store).findings if f.severity >= Severity.ERROR]


def as_killed(root: Path, *, committed: int, voted: str, last: int) -> set[Path]:
    """Leave a member as it was killed: from entry `last` on nothing has a unit, and there is no index. Returns the
    files of queues.
    """
    begin, queues = records(root)[last].position, set[Path]()
    for path in (root / "consumequeue").glob("*/*/*"):
        units = np.frombuffer(path.read_bytes(), UNIT_DTYPE).copy()
        units[units["physical_offset"] >= begin] = 0
        path.write_bytes(units.tobytes())
        queues.add(path)
    shutil.rmtree(root / "index")
    (root / "abort").touch()
    (root / "dledger-n0" / "checkpoint").write_text(f"endIndex={last + 5}\ncommittedIndex={committed}\n")
    (root / "dledger-n0" / "currterm").write_text(f"currTerm={int(voted != 'n0')}\nvoteLeader={voted}\n")
    return queues


@pytest.mark.parametrize(
    ("committed", "voted", "until"), [(-1, "n1", 0), (2, "n1", 3), (2, "n0", None), (-1, "", 0), (5, "n1", None)]
)
def test_what_a_group_has_not_committed_gets_no_units(
    committed: int, voted: str, until: int | None, base: Path, tmp_path: Path
) -> None:
    """`last` and the next entries: only a node that is alone is sure to keep them."""
    root = Path(shutil.copytree(base, tmp_path / "store", copy_function=sparse_copy))
    there, last = records(root), len(records(root)) - 6
    queues = as_killed(root, committed=last + committed if committed >= 0 else -1, voted=voted, last=last)
    again = recovered(root)
    assert again.nothing_to_do
    named = np.concatenate([np.frombuffer(path.read_bytes(), UNIT_DTYPE)["physical_offset"] for path in queues])
    whole = [place.position for place in there[last:]]
    assert sorted(named[named >= whole[0]]) == whole[: len(whole) if until is None else until]
    with Store(root) as store:
        items = [int(some["physical_offset"].max()) for f in store.index.files for _, some in f.columns()]
        assert max(items) < (whole[until] if until is not None else store.log_end.position)
        assert not [f for f in verify(store).findings if f.severity >= Severity.ERROR or f.unclean]
    noted = any("has not committed" in note for note in again.notes)
    assert noted == (until is not None)


def test_what_the_index_of_a_group_names_is_committed(base: Path, tmp_path: Path) -> None:
    """Queues that are gone are made anew up to there, and the index stays."""
    root = Path(shutil.copytree(base, tmp_path / "store", copy_function=sparse_copy))
    index = shutil.copytree(root / "index", tmp_path / "index", copy_function=sparse_copy)
    as_killed(root, committed=-1, voted="n1", last=0)
    shutil.copytree(index, root / "index", copy_function=sparse_copy)
    shutil.rmtree(root / "consumequeue")
    plan = in_group(root, Policy.KEEP)
    assert plan.dispatched == plan.log_end
    assert not [edit for edit in plan.edits if "/index/" in edit.path]
    assert plan.completed == len(records(root))


def test_a_unit_that_names_no_place_in_the_log_commits_nothing(base: Path, tmp_path: Path) -> None:
    """One wrong bit in the last unit of a queue; a node of several gets units for nothing that is not committed."""
    root = Path(shutil.copytree(base, tmp_path / "store", copy_function=sparse_copy))
    last = len(records(root)) - 6
    path = min(as_killed(root, committed=last - 1, voted="n1", last=last))
    units = np.frombuffer(path.read_bytes(), UNIT_DTYPE).copy()
    units["physical_offset"][np.flatnonzero(units["size"])[-1]] |= 1 << 40
    path.write_bytes(units.tobytes())
    assert in_group(root, Policy.KEEP).dispatched <= records(root)[last].position


def test_an_index_file_that_contradicts_its_header_commits_nothing(base: Path, tmp_path: Path) -> None:
    """`verify` and the plan agree: both leave the file out."""
    root = Path(shutil.copytree(base, tmp_path / "store", copy_function=sparse_copy))
    path, sizes = tmp_path / "index", {"maxHashSlotNum": "97", "maxIndexNum": "400"}
    min((root / "index").iterdir()).rename(path)
    as_killed(root, committed=2, voted="n1", last=3)
    (root / "index").mkdir()
    path = path.rename(root / "index" / "20261122022900689")
    slots = np.memmap(path, ">i4", "r+", INDEX_BYTES, (97,))
    slots[slots > 2] = 0  # two items are left, of the records that the header names
    slots.flush()
    set_field(path, 0, HEADER, "index_count", 3)
    with StoreReader(root, BrokerConfig(PEERS | sizes)) as store:
        assert uncommitted_from(store) == records(root)[3].position - HEADER_BYTES
    assert in_group(root, Policy.KEEP, **sizes).dispatched == records(root)[3].position - HEADER_BYTES


PEERS = {"dLegerPeers": "n0-h:1;n1-h:2"}


def in_group(root: Path, policy: Policy, case: str = "", **options: str) -> Plan:
    """The plan for the store of one of several nodes. case: that of its start."""
    layout = Layout.open(root, BrokerConfig(PEERS | options))
    found = analyze(layout, VERSION, options=RecoveryOptions(policy), jobs=1)
    assert found.plan is not None and case in ("", found.prediction.case.label)
    return found.plan


def test_the_end_of_a_log_comes_again_from_the_leader(base: Path, tmp_path: Path) -> None:
    """The index names the lost entries: real members get them back, with all their bytes."""
    root = Path(shutil.copytree(base, tmp_path / "store", copy_function=sparse_copy))
    there = records(root)[-3:]
    with there[0].path.open("r+b") as file:
        file.seek(there[0].offset)
        file.write(bytes(there[-1].offset + there[-1].size - there[0].offset))
    plan = found(root).plan
    assert plan is not None and (plan.lost_messages, plan.resent) == (3, 0)
    plan = in_group(root, Policy.KEEP)
    assert (plan.lost_messages, plan.resent, plan.log_end) == (0, 3, there[0].position - HEADER_BYTES)


@pytest.mark.parametrize("whole_record", [False, True])
def test_the_log_of_a_group_is_cut_at_damage_that_dledger_never_looks_at(
    whole_record: bool, base: Path, tmp_path: Path
) -> None:
    """A wrong byte in a body, or a record that cannot be read, in front of where a start begins."""
    root = Path(shutil.copytree(base, tmp_path / "store", copy_function=sparse_copy))
    place, end, count = records(root)[50], found(root, Policy.BROKER).prediction.log_end, len(records(root))
    with place.path.open("r+b") as file:
        file.seek(place.offset + (0 if whole_record else place.size // 2))
        body = file.read(1)
        file.seek(-1, 1)
        file.write(bytes(60) if whole_record else bytes([body[0] ^ 0x20]))
    alone = found(root, Policy.BROKER).plan
    assert alone is not None and alone.log_end == end
    plan = in_group(root, Policy.BROKER, case="damage-unseen")
    assert plan.log_end == place.position - HEADER_BYTES
    assert plan.lost_messages == count - 50


@pytest.mark.parametrize(
    "wrong", [{"topic": b"TopicC"}, {"queue_id": 3}, {"queue_offset": 0}, {"sys_flag": 4}], ids=str
)
def test_a_record_with_a_wrong_header_is_put_right(wrong: dict[str, Any], base: Path, tmp_path: Path) -> None:
    """Entry and body are whole: a unit of its own queue tells what the record was."""
    root = tmp_path / "store"
    shutil.copytree(base, root, copy_function=sparse_copy)
    path = root / DATA / f"{FILE_BYTES:020d}"
    whole = path.read_bytes()
    at = entry_starts([path])[5] % FILE_BYTES + HEADER_BYTES
    changed = MESSAGE.build({**MESSAGE.parse(whole[at:]), **wrong})
    path.write_bytes(whole[:at] + changed + whole[at + len(changed) :])
    assert path.read_bytes() != whole
    plan = found(root).plan
    assert plan is not None
    assert (plan.lost.messages, plan.restored) == (0, 1)
    recovered(root)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(("field", "value"), [("magic", 2), ("magic", 9), ("body_length", 33)])
def test_of_an_entry_whose_head_is_wrong_nothing_was_lost(field: str, value: int, base: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(base, tmp_path / "store", copy_function=sparse_copy))
    place = records(root)[100]
    set_field(place.path, place.offset - HEADER_BYTES, HEAD, field, value)
    plan = found(root).plan
    assert plan is not None
    edits = [edit for edit in plan.edits if DATA in str(edit.path)]
    assert [(edit.reason, edit.codes) for edit in edits] == [
        ("corrects the header of an entry: its record is whole", ("I-052",))
    ]


@pytest.mark.parametrize(
    ("terms", "before", "wanted"),
    [
        ([1, 1, 2, 2], 0, [1, 1, 2, 2]),
        ([1, 9, 1, 2], 0, [1, 1, 1, 2]),
        ([5, 5, 1, 5, 6], 5, [5, 5, 5, 5, 6]),
        ([0, 3], 3, [3, 3]),
    ],
)
def test_a_term_that_stands_out(terms: list[int], before: int, wanted: list[int]) -> None:
    assert _rising(np.array(terms, np.int64), before).tolist() == wanted


def test_an_entry_is_larger_than_its_record() -> None:
    assert HEADER_BYTES == 48


KILLED = [n for n in stores.OF_TODAY if "dledger-killed" in n and not n.endswith("-restarted")]


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED)
def test_real_starts_are_predicted(name: str, tmp_path: Path) -> None:
    """What real brokers made of these stores: where the log ended, and the queues that they had."""
    truth, restarted = stores.truth(name), stores.truth(f"{name}-restarted")
    snapshot = Snapshot.of(Layout.open(stores.unpack(name, tmp_path)))
    outcome = simulate(snapshot, profile_of(truth["broker_version"]), switches_of(snapshot))
    assert outcome.log_end == restarted["log_end"]
    mine = {str(n): q.max_offset for n, q in outcome.queues.items() if q.max_offset}
    real = {n: q["max_offset"] for n, q in truth["queues"].items() if q["max_offset"]}
    assert mine == real
