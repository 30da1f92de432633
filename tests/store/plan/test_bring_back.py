"""`recover --replica`: what one log has lost comes back byte for byte from a copy of it."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.checkpoint import CHECKPOINT
from mqstore.formats.message import MESSAGE
from mqstore.store.audit.messages import Messages
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.damage.scenarios import PAGE_BYTES
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Refused
from mqstore.store.log.batch import Batch
from mqstore.store.plan.bring_back import Brought, QueueChain, ReplicaPart
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.plan.replica import is_original
from mqstore.store.queues.references import commit_log_of
from mqstore.store.recover.recovery import analyze, replan
from mqstore.store.session.apply import apply
from mqstore.store.session.undo import session_to_undo, undo

from ... import stores
from ...damage import ALL_KINDS, DROP_FILE, Victim, damage
from ...slices import pick, rng
from ..recover.recovered import content
from .ha_pair import CONFIG, FILE_BYTES, MADE_MS, MASTER, PAGE, SLAVE, Stores, log_bytes, overwrite, planned, recovered

pytestmark = pytest.mark.long


def brought(plan: Plan) -> Brought:
    assert plan.brought is not None
    return plan.brought


def log_end(root: Path) -> int:
    return commit_log_of(Layout.open(root, CONFIG)).end().position


def looks_good(root: Path, position: int, size: int) -> bool:
    """Damage that no checksum and no field shows."""
    log = commit_log_of(Layout.open(root, CONFIG))
    found = log.records(np.array([position], np.int64))
    if not len(found) or int(found.columns.ints("total_size")[0]) != size:
        return False
    assert found.body_crc_ok is not None
    in_place = int(found.columns.ints("physical_offset")[0]) == position
    return in_place and bool(found.body_crc_ok[0]) and bool(is_original(found)[0])


def copied_first(root: Path, replica: Path) -> None:
    """What a plan with the replica is refused for, done by the command that is named."""
    with pytest.raises(Refused, match="before the beginning of the log") as refused:
        planned(root, replica)
    command = shlex.split((refused.value.hint or "").partition(": ")[2])
    assert command[:2] == ["cp", "-a"]
    shutil.copy2(command[2], command[3])


def check(unpacked: Stores, name: str, peer: str, kind: str, seed: int, work: Path) -> None:
    """Damage one side inside what both have: afterwards its log is what it was, there and behind."""
    whole, root = unpacked(name), work / "store"
    common = min(log_end(whole), log_end(unpacked(peer)))
    shutil.copytree(whole, root)
    victim = Victim.of(name, whole).moved(root)
    spans = tuple(span for span in victim.spans if span.position + span.size <= common)
    sizes = {span.position: span.size for span in spans}
    hurt = damage(Victim(root, spans), rng(f"{name} {kind} {seed}"), kind=kind)
    silent = {p for p in hurt.spoiled & sizes.keys() if looks_good(root, p, sizes[p])}
    if hurt.kind == DROP_FILE and hurt.path.name == file_name(0):
        copied_first(root, unpacked(peer))  # it has not expired
    plan = recovered(root, unpacked(peer))
    assert brought(plan).parted_at is None  # damage is not another message
    before, after = log_bytes(whole), log_bytes(root)
    for position in sorted(hurt.spoiled & sizes.keys() - silent):
        end = position + sizes[position]
        assert after[position:end] == before[position:end], f"{name} {hurt}: record at {position}"
    if not silent:
        assert after[:common] == before[:common], f"{name} {hurt}"
        assert plan.lost.messages == 0 or hurt.offset + hurt.length > common % FILE_BYTES


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_what_is_damaged_comes_back(unpacked: Stores, kind: str, tmp_path: Path) -> None:
    check(unpacked, MASTER, SLAVE, kind, 2, tmp_path)


@pytest.mark.slow
def test_every_pair_and_kind(unpacked: Stores, tmp_path: Path) -> None:
    pairs = [
        (name, other)
        for name in stores.ALL
        if "-ha-" in name
        for other in stores.ALL
        if "-ha-" in other and other != name and other[:5] == name[:5]
    ]
    cases = [(*pair, kind, seed) for pair in pairs for kind in ALL_KINDS for seed in range(25)]
    for number, case in enumerate(pick(cases, "replica")):
        work = tmp_path / str(number)
        work.mkdir()
        check(unpacked, *case, work)
        shutil.rmtree(work)


def test_the_report_says_what_came_and_what_did_not(unpacked: Stores, torn: Path) -> None:
    peer = unpacked(SLAVE)
    found = analyze(Layout.open(torn, CONFIG), "5.3", options=RecoveryOptions(Policy.KEEP, replica=str(peer)))
    assert found.plan is not None
    row = found.to_json()["plan"]["replica"]
    (part,) = row["ranges"]
    assert part["position"] <= PAGE
    assert part["position"] + part["size"] >= PAGE + PAGE_BYTES
    assert row["lacking"] == [] and not row["goes_on"] and row["replica"] == str(peer)
    assert found.plan.lost.messages == 0 and found.prediction.lost.messages > 0


def test_undo_takes_it_back(unpacked: Stores, torn: Path) -> None:
    before = content(torn)
    recovered(torn, unpacked(SLAVE))
    assert content(torn) != before
    layout = Layout.open(torn, CONFIG)
    undo(layout, session_to_undo(layout), Files())
    assert content(torn) == before


def test_the_index_has_what_came_back(unpacked: Stores, torn: Path) -> None:
    """A damaged log without an index: the index is made from the log as it will be."""
    shutil.rmtree(torn / "index")
    recovered(torn, unpacked(SLAVE))


def test_a_copy_of_another_log_is_refused(unpacked: Stores, torn: Path) -> None:
    with pytest.raises(Refused, match="not a copy of this log"):
        planned(torn, unpacked("5.3.3-killed"))


def test_a_part_whose_sides_differ_is_left(unpacked: Stores, torn: Path, tmp_path: Path) -> None:
    """The replica has another record behind the hole: nobody knows what it has inside."""
    peer = Path(shutil.copytree(unpacked(SLAVE), tmp_path / "peer"))
    (part,) = brought(planned(torn, peer)).parts
    change(peer / "commitlog" / file_name(0), part.position + part.size, born_timestamp=1)
    plan = planned(torn, peer)
    (lack,) = brought(plan).lacks
    assert not brought(plan).parts and "after this place differ" in lack.reason
    assert plan.lost.messages > 0


def change(path: Path, offset: int, **fields: object) -> None:
    """Give a record other values, a topic of one byte as long as it was."""
    values = MESSAGE.parse(path.read_bytes()[offset:])
    fields |= {name: text * len(values[name]) for name, text in fields.items() if isinstance(text, bytes)}
    overwrite(path, offset, MESSAGE.build({**values, **fields}))


def test_both_damaged_in_one_place(unpacked: Stores, torn: Path, tmp_path: Path) -> None:
    """What the replica has of the hole comes; for the rest there are tombstones, and it is told."""
    peer = Path(shutil.copytree(unpacked(SLAVE), tmp_path / "peer"))
    overwrite(peer / "commitlog" / file_name(0), 63000, bytes(40))
    plan = recovered(torn, peer)
    assert len(brought(plan).parts) == 2
    (lack,) = brought(plan).lacks
    assert lack.position <= 63000 < lack.position + lack.size
    assert 0 < plan.lost.messages <= 2


def test_tombstones_give_way_to_what_was_there(unpacked: Stores, torn: Path) -> None:
    """A recovery without the replica first: the messages can still come back."""
    config, options = CONFIG, RecoveryOptions(Policy.KEEP, MADE_MS, ("5.3",))

    def without() -> Plan:
        return replan(Layout.open(torn, config), "5.3", options)

    plan = without()
    apply(Layout.open(torn, config), plan, without, Files())
    assert plan.lost.messages > 0
    recovered(torn, unpacked(SLAVE))
    assert log_bytes(torn)[:FILE_BYTES] == log_bytes(unpacked(MASTER))[:FILE_BYTES]


def test_tombstones_of_the_replica_are_not_taken(unpacked: Stores, torn: Path, tmp_path: Path) -> None:
    peer = Path(shutil.copytree(torn, tmp_path / "peer"))
    options = RecoveryOptions(Policy.KEEP, MADE_MS, ("5.3",))
    plan = replan(Layout.open(peer, CONFIG), "5.3", options)
    apply(Layout.open(peer, CONFIG), plan, lambda: replan(Layout.open(peer, CONFIG), "5.3", options), Files())
    gaps = [(fill.gap.begin, fill.gap.end) for fill in plan.fills]
    assert gaps  # a record whose header alone was wrong is no tombstone, and comes
    taken = brought(planned(torn, peer)).parts
    assert not [p for p in taken for begin, end in gaps if begin < p.position + p.size and p.position < end]


def cut(root: Path, end: int, *, units: bool = True) -> Path:
    """The pages behind `end` never reached the disk; with `units` those of the queues did."""
    data = log_bytes(root)
    for start in range(0, len(data), FILE_BYTES):
        path = root / "commitlog" / file_name(start)
        if path.exists() and start + FILE_BYTES > end:
            overwrite(path, max(0, end - start), bytes(FILE_BYTES - max(0, end - start)))
    if not units:
        shutil.rmtree(root / "consumequeue")
    return root


@pytest.mark.few(1)
@pytest.mark.parametrize("units", [True, False])
def test_a_lost_end_comes_back(unpacked: Stores, tmp_path: Path, units: bool) -> None:
    """A crashed master whose last pages are gone: the slave's log goes further."""
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    end = log_end(unpacked(SLAVE))
    cut(root, 100_000, units=units)
    plan = recovered(root, unpacked(SLAVE))
    assert log_end(root) >= end and log_bytes(root)[:end] == log_bytes(unpacked(MASTER))[:end]
    # units of the master name records that not even the slave has
    assert [lack.position for lack in brought(plan).lacks] == ([end] if units else [])


@pytest.mark.parametrize("end", [100_000, 150_000, 2 * FILE_BYTES])
def test_what_neither_log_has_of_missing_last_files_is_lost(unpacked: Stores, tmp_path: Path, end: int) -> None:
    """The replica ends in a missing file, in front of it or with it: queues name the messages behind."""
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    peer = cut(Path(shutil.copytree(unpacked(MASTER), tmp_path / "peer")), end)
    for start in (1, 2, 3):
        (root / "commitlog" / file_name(start * FILE_BYTES)).unlink()
    options = RecoveryOptions(Policy.KEEP, replica=str(peer))
    found = analyze(Layout.open(root, CONFIG), "5.3", options=options)
    assert found.plan is not None and found.plan_case.label == "last-file-missing"
    came = sum(part.records for part in brought(found.plan).parts)
    assert (bool(came), found.plan.lost.messages) == (end > FILE_BYTES, 384 - came)
    recovered(root, peer)


def test_a_missing_last_file_that_comes_is_told(unpacked: Stores, tmp_path: Path) -> None:
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    (root / "commitlog" / file_name(2 * FILE_BYTES)).unlink()
    (root / "commitlog" / file_name(3 * FILE_BYTES)).unlink()
    options = RecoveryOptions(Policy.KEEP, replica=str(unpacked(MASTER)))
    found = analyze(Layout.open(root, CONFIG), "5.3", options=options)
    assert found.plan is not None
    assert (found.plan_case.label, found.plan.lost.messages) == ("last-file-missing", 0)


def test_a_sound_end_is_the_end(unpacked: Stores, tmp_path: Path) -> None:
    """A store that was shut down in order gets no more messages; that there are more is told."""
    root = Path(shutil.copytree(unpacked(SLAVE), tmp_path / "store"))
    options = RecoveryOptions(Policy.KEEP, MADE_MS, ("5.3",))

    def without() -> Plan:
        return replan(Layout.open(root, CONFIG), "5.3", options)

    apply(Layout.open(root, CONFIG), without(), without, Files())
    plan = planned(root, unpacked(MASTER))
    assert plan.edits == () and brought(plan).parts == [] and brought(plan).goes_on


def test_a_slave_gets_the_rest_from_its_master(unpacked: Stores, tmp_path: Path) -> None:
    root = Path(shutil.copytree(unpacked(SLAVE), tmp_path / "store"))
    plan = planned(root, unpacked(MASTER), CONFIG.with_set(["brokerRole=SLAVE"]))
    assert brought(plan).parts == [] and brought(plan).goes_on


def test_a_slave_that_is_ahead_of_its_master_never_follows(unpacked: Stores, tmp_path: Path) -> None:
    """A replica may be an old copy of the master: so only the policy of brokers cuts, and `keep` tells."""
    root, master = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store")), unpacked(SLAVE)
    as_slave, end = CONFIG.with_set(["brokerRole=SLAVE"]), log_end(master)
    kept = planned(root, master, as_slave)
    assert brought(kept).ends_at == end < kept.log_end and brought(kept).parted_at is None
    assert brought(planned(root, master)).ends_at is None  # a master may have more than its slave
    options = RecoveryOptions(Policy.BROKER, MADE_MS, ("5.3",), replica=str(master))
    cut = replan(Layout.open(root, as_slave), "5.3", options)
    assert cut.log_end == brought(cut).parted_at == end
    assert brought(cut).never_follows.endswith("ends there, so as its slave a broker never follows")


@pytest.mark.parametrize("name", ["epochFileCheckpoint", "epochFileCheckpoint.bak"])
@pytest.mark.parametrize("units", [False, True])
def test_nothing_that_a_controller_has_not_confirmed(
    name: str, unpacked: Stores, tmp_path: Path, *, units: bool
) -> None:
    """With an epoch file only what all replicas in sync have is taken, as the rest may be cut again, and what units of
    the store itself name: a master alone in its group confirms nothing.
    """
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    peer = Path(shutil.copytree(unpacked(SLAVE), tmp_path / "peer"))
    cut(root, 100_000, units=units)
    (peer / name).write_text("1\n0\n1-0\n")
    checkpoint = CHECKPOINT.parse((peer / "checkpoint").read_bytes())
    made = CHECKPOINT.build({**checkpoint, "confirm_phy_offset": 150_000})
    overwrite(peer / "checkpoint", 0, made)
    found = brought(planned(root, peer))
    if units:
        assert found.parts[-1].end > 150_000 and found.confirmed is None
    else:
        assert 145_000 < found.parts[-1].end <= 150_000 and (found.goes_on, found.confirmed) == (True, 150_000)


def test_another_record_at_the_end(unpacked: Stores, tmp_path: Path) -> None:
    """The broker went on writing after the copy was made of it: that record is torn, not the copy's."""
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    first = brought(planned(cut(root, 100_000, units=False), unpacked(SLAVE))).parts[0].position
    data = log_bytes(unpacked(MASTER))[first : first + 2000]
    values = MESSAGE.parse(data)
    other = MESSAGE.build({**values, "queue_offset": 7777, "born_timestamp": 1, "total_size": values.total_size + 9})
    overwrite(root / "commitlog" / file_name(0), first, other[:-20])
    plan = planned(root, unpacked(SLAVE))
    assert brought(plan).parts == []
    assert "another record" in brought(plan).lacks[0].reason


@pytest.mark.parametrize("noise", [((0, 28),), ((4, 24),), ((0, 28), (36, 52))])
def test_noise_over_the_last_header_does_not_hide_what_the_copy_has(
    unpacked: Stores, noise: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    """The record still names its place, but its times are those of the copy's record, or no times."""
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    first = brought(planned(cut(root, 100_000, units=False), unpacked(SLAVE))).parts[0].position
    overwrite(root / "commitlog" / file_name(0), first, log_bytes(unpacked(MASTER))[first : first + 100])
    for begin, size in noise:
        overwrite(root / "commitlog" / file_name(0), first + begin, b"A" * size)
    [part] = brought(planned(root, unpacked(SLAVE))).parts
    assert (part.position, part.records) == (first, 158)


@pytest.mark.parametrize("wrong", [{"sys_flag": 1}, {"queue_id": 99}, {"queue_offset": 7777}, {"topic": b"X"}])
def test_a_header_that_no_checksum_covers_comes_back(
    unpacked: Stores, tmp_path: Path, wrong: dict[str, object]
) -> None:
    """Flags that call a plain body compressed (I-039); another queue, another place in it."""
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    shutil.rmtree(root / "consumequeue")
    position = commit_log_of(Layout.open(root, CONFIG)).records(np.array([0], np.int64)).end
    change(root / "commitlog" / file_name(0), position, **wrong)
    (part,) = brought(recovered(root, unpacked(SLAVE))).parts
    assert (part.position, part.records) == (position, 1)
    assert log_bytes(root)[:FILE_BYTES] == log_bytes(unpacked(MASTER))[:FILE_BYTES]


PORT = {"ip": b"\x7f\0\0\1", "port": 1 << 20}
"""No address has this one."""


@pytest.mark.parametrize("wrong", [{"store_host": PORT}, {"born_host": PORT}, {"sys_flag": 4}, {"sys_flag": 1 << 12}])
@pytest.mark.parametrize("row", [0, 40])
def test_fields_that_no_record_has_come_back(
    unpacked: Stores, tmp_path: Path, wrong: dict[str, object], row: int
) -> None:
    """No queue tells of hosts and flags, and a record that is called prepared is in none."""
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    shutil.rmtree(root / "consumequeue")
    position = int(first_batch(root).position[row])
    change(root / "commitlog" / file_name(0), position, **wrong)
    (part,) = brought(recovered(root, unpacked(SLAVE))).parts
    assert (part.position, part.records) == (position, 1)
    assert log_bytes(root)[:FILE_BYTES] == log_bytes(unpacked(MASTER))[:FILE_BYTES]


def test_zeros_in_the_middle_of_properties_are_what_the_replica_has(unpacked: Stores, tmp_path: Path) -> None:
    """They look like a value that a client gave: only the replica shows that it did not. So does noise, of neighbours
    too.
    """
    root = Path(shutil.copytree(unpacked(MASTER), tmp_path / "store"))
    batch, path = first_batch(root), root / "commitlog" / file_name(0)
    middle = int(batch.columns.ragged("properties").start[10] - batch.columns.starts[10] + batch.position[10]) + 20
    overwrite(path, middle, bytes(6))
    for row in (12, 13, 20):
        change(path, int(batch.position[row]), store_host=PORT, physical_offset=7, born_timestamp=1)
    parts = brought(recovered(root, unpacked(SLAVE))).parts
    assert [(part.position, part.records) for part in parts] == [
        (int(batch.position[row]), count) for row, count in ((10, 1), (12, 2), (20, 1))
    ]
    assert log_bytes(root)[:FILE_BYTES] == log_bytes(unpacked(MASTER))[:FILE_BYTES]


def test_what_is_as_wrong_in_the_replica_stays(unpacked: Stores, tmp_path: Path) -> None:
    root, peer = (Path(shutil.copytree(unpacked(MASTER), tmp_path / name)) for name in ("store", "peer"))
    position = int(first_batch(root).position[40])
    change(root / "commitlog" / file_name(0), position, store_host=PORT)
    change(peer / "commitlog" / file_name(0), position, born_host=PORT)
    found = brought(planned(root, peer))
    assert found.parts == [] and found.lacks == []


def first_batch(root: Path) -> Batch:
    """The first records of the log."""
    return next(item for item in commit_log_of(Layout.open(root, CONFIG)).scan() if isinstance(item, Batch))


@pytest.mark.parametrize("wrong", [{"sys_flag": 1}, {"queue_id": 99}, {"topic": b"X"}, {"sys_flag": 4}])
def test_a_wrong_header_of_the_replica_is_not_taken(unpacked: Stores, tmp_path: Path, wrong: dict[str, object]) -> None:
    """The first records of queues are compared; no other of the log has the replica's queue."""
    peer = Path(shutil.copytree(unpacked(SLAVE), tmp_path / "peer"))
    change(peer / "commitlog" / file_name(0), 0, **wrong)
    found = brought(planned(unpacked(MASTER), peer))
    assert found.parts == [] and found.lacks == []


def test_queue_offsets_have_to_fit() -> None:
    """Between 3 and 5 of a queue there is room for 4 and for nothing else."""
    part = ReplicaPart(1000, 100, 1)
    for offset, fits in ((4, True), (5, False), (3, False), (0, False)):
        chain = QueueChain([part])
        for offsets, positions in (([2, 3], [500, 700]), ([offset, 5], [1000, 1100])):
            count = len(offsets)
            column = np.array(offsets, np.int64), np.array(positions, np.int64)
            zeros, flags = np.zeros(count, np.int64), np.ones(count, np.bool_)
            chain.messages(Messages(QueueId("a", 0), *column, zeros, zeros, zeros, flags, ~flags))
        assert chain.broken == (set() if fits else {part}), offset
