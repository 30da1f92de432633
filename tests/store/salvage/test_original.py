"""A store at the old positions: what was there is there again, and the holes are closed."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from mqstore.formats.hashing import crc31
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, NotFound, Refused, Unsupported
from mqstore.store.findings.catalogue import Severity
from mqstore.store.library import Store
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover.recovery import analyze
from mqstore.store.salvage.original import MORE
from mqstore.store.salvage.runs import Grade, images_of
from mqstore.store.salvage.salvage import LayoutKind, SalvageRequest, check_target
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import load_checks, verify
from tests.damage import Victim, damage
from tests.slices import rng, share
from tests.stores import unpack

from .images import SMALL, fake, image, manifest, noise, records_of, salvaged

pytestmark = pytest.mark.long

STORE = "5.3.3-clean"
DELETED = Path(__file__).with_name("deleted.img.gz")
"""An ext4 file system with two deleted files: the log of STORE. Made as `ext4_image` makes one."""


def assert_in_order(root: Path, config: BrokerConfig = SMALL) -> None:
    """A recovery has nothing to do, and every offset of every queue has a message."""
    found = analyze(Layout.open(root, config), options=RecoveryOptions(Policy.KEEP))
    assert found.plan is not None
    assert (found.nothing_to_do, found.harmful) == (True, False), found.plan.edits
    with Store(root, config) as store:
        for queue in store.queue_summaries:
            for offset in range(queue.min_offset, queue.max_offset):
                store.message(queue.topic, queue.queue_id, offset)


def log_of(root: Path) -> dict[str, bytes]:
    """Content of the log's files by name."""
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean", "5.3.3-v2", "5.5.0-propcrc"])
def test_a_whole_log_is_the_same_again(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    done = salvaged(tmp_path / "new", root / "commitlog")
    assert done.complete
    assert log_of(tmp_path / "new") == log_of(root)
    assert_in_order(tmp_path / "new")
    with Store(tmp_path / "new", SMALL) as store:
        mine = {(q.topic, q.queue_id): (q.min_offset, q.max_offset) for q in store.queue_summaries}
    with Store(root) as store:
        for queue in store.queue_summaries:
            if queue.max_offset > queue.min_offset:
                its = (queue.min_offset, queue.max_offset)
                assert mine[queue.topic, queue.queue_id] == its


def test_deleted_files_of_a_disk_image(tmp_path: Path) -> None:
    """Two of the records lie in blocks apart: their checksums join them."""
    root = unpack(STORE, tmp_path)
    done = salvaged(tmp_path / "new", DELETED)
    assert (done.complete, done.found.joined) == (True, 2)
    assert log_of(tmp_path / "new") == log_of(root)
    assert_in_order(tmp_path / "new")


def ext4_image(folder: Path, root: Path) -> Path:
    """A file system that had the store's log, without it; the committed one without e2fsprogs."""
    if shutil.which("mke2fs") is None or shutil.which("debugfs") is None:
        return DELETED
    made = folder / "disk.img"
    os.truncate(image(folder, b"", "disk.img"), 64 << 20)
    command = ["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-d", str(root), str(made)]
    subprocess.run(command, check=True, capture_output=True)
    for path in sorted((root / "commitlog").iterdir()):
        command = ["debugfs", "-w", "-R", f"rm /commitlog/{path.name}", str(made)]
        subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-killed", "5.3.3-clean", "5.5.0-clean"])
def test_deleted_files_of_a_file_system(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    disk = ext4_image(tmp_path, root)
    done = salvaged(tmp_path / "new", disk)
    expected = {position for position, _ in records_of(STORE if disk == DELETED else name, root)}
    places = {line.get("to") for line in manifest(tmp_path / "new") if line["type"] == "salvaged"}
    assert places == expected
    assert done.found.split == 0


def damaged(root: Path, chance: random.Random, kinds: list[str]) -> set[int]:
    """Damage a store's log; returns the positions of the records that lost bytes."""
    victim, spoiled = Victim.of(STORE, root), set[int]()
    for kind in kinds:
        spoiled |= damage(victim, chance, kind=kind).spoiled
    return spoiled


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["zero_page", "wrong_size"])
def test_holes_are_closed_and_the_rest_stays(kind: str, tmp_path: Path) -> None:
    root = unpack(STORE, tmp_path)
    before = dict(records_of(STORE, root))
    check_holes(root, tmp_path / "new", before, damaged(root, rng(kind), [kind]))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(share(60)))
def test_holes_of_several_kinds(number: int, tmp_path: Path) -> None:
    chance = rng(f"holes {number}")
    root = unpack(STORE, tmp_path)
    before = dict(records_of(STORE, root))
    kinds = ["zero_page", "garbage", "wrong_size", "flip_bit", "stale_record", "torn_tail"]
    spoiled = damaged(root, chance, chance.choices(kinds, k=4))
    check_holes(root, tmp_path / "new", before, spoiled)


def check_holes(root: Path, new: Path, before: dict[int, bytes], spoiled: set[int]) -> None:
    """Every record that was not spoiled is at its place, and the store is in order.

    A header has no checksum where the record has none of its own: such damage cannot be told, and
    then there may be more to mend.
    """
    done = salvaged(new, root / "commitlog", grade=Grade.WHOLE)
    assert done.restored is not None
    log = log_of(new)
    size = done.file_bytes
    for position in before.keys() - spoiled:
        file = log[f"{position // size * size:020d}"]
        record = before[position]
        assert file[position % size :][: len(record)] == record, position
    if spoiled & {line.get("to") for line in manifest(new)}:
        return
    assert done.restored.left == ""
    assert_in_order(new)
    assert done.restored.tombstones <= len(spoiled)
    assert done.restored.unplaced == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["4.9.7-cqext", "5.3.3-batchcq", "5.3.3-clean", "5.3.3-timer-clean"])
def test_the_begin_of_the_log_is_gone(name: str, tmp_path: Path) -> None:
    """All that is known of the image is its bytes; what is made of them is in order."""
    root, new = unpack(name, tmp_path), tmp_path / "new"
    data = (root / "commitlog" / f"{0:020d}").read_bytes()
    done = salvaged(new, image(tmp_path, data[5000:]))
    assert done.restored is not None
    assert done.restored.unplaced == 0
    assert_in_order(new)
    with Store(new, SMALL) as store:
        assert all(queue.min_offset == 0 for queue in store.queue_summaries)
        load_checks()
        found = verify(store, Scope()).findings
    assert not [each for each in found if each.severity > Severity.WARNING]


def test_light_queues_without_a_configuration(tmp_path: Path) -> None:
    """A number in an LMQ tells that the broker kept such queues."""
    root, new = unpack("5.3.3-lmq", tmp_path), tmp_path / "new"
    assert salvaged(new, root / "commitlog").complete
    names = {path.name for path in (root / "consumequeue").glob("%LMQ%*")}
    assert names == {path.name for path in (new / "consumequeue").glob("%LMQ%*")} != set()


def test_a_file_in_the_middle_is_gone(tmp_path: Path) -> None:
    """Half of the queue offsets are missing: each has a tombstone where there is room."""
    root = unpack("5.3.3-expired", tmp_path)
    files = sorted((root / "commitlog").iterdir())
    files[1].unlink()
    done = salvaged(tmp_path / "new", root / "commitlog")
    assert done.restored is not None
    assert done.restored.tombstones > 0
    assert done.restored.unplaced == 0
    assert_in_order(tmp_path / "new")


def test_nothing_is_written_twice_and_conflicts_lie_aside(tmp_path: Path) -> None:
    root = unpack(STORE, tmp_path)
    records = records_of(STORE, root)
    position, record = records[3]
    other = record[:-8] + b"OTHER\2\2\2"
    copy = image(tmp_path, other + bytes(64), "copy")
    done = salvaged(tmp_path / "new", root / "commitlog", root / "commitlog", copy)
    assert log_of(tmp_path / "new") == log_of(root)
    assert [(run.position, run.records) for layer in done.aside for run in layer.runs] == [(position, 1)]
    aside = tmp_path / "new" / "conflicts" / "1" / f"{position:020d}"
    assert aside.read_bytes() == other
    fates = [line["fate"] for line in manifest(tmp_path / "new")]
    assert (fates.count("kept"), fates.count("aside")) == (len(records), 1)
    assert not done.complete


def test_the_same_file_twice_under_two_names(tmp_path: Path) -> None:
    root = unpack(STORE, tmp_path)
    first = min((root / "commitlog").iterdir())
    copy = image(tmp_path, first.read_bytes(), "copy")
    done = salvaged(tmp_path / "new", root / "commitlog", copy)
    assert done.complete
    assert sum(run.records for run in done.arranged.duplicates) > 100
    assert log_of(tmp_path / "new") == log_of(root)


def test_what_lies_aside_is_kept_once(tmp_path: Path) -> None:
    """Three versions of some records: the log has one, two lie aside, each in a layer of its own."""
    root = unpack(STORE, tmp_path)
    records = records_of(STORE, root)[10:14]
    others = [b"".join(r[:-6] + tail for _, r in records) for tail in (b"ONE\2\2\2", b"TWO\2\2\2")]
    copies = [image(tmp_path, other + bytes(99), f"copy{n}") for n, other in enumerate(others * 2)]
    done = salvaged(tmp_path / "new", root / "commitlog", *copies)
    assert [[(r.position, r.records) for r in layer.runs] for layer in done.aside] == [[(records[0][0], 4)]] * 2
    found = {p.read_bytes() for p in (tmp_path / "new" / "conflicts").rglob("0*")}
    assert found == set(others)
    assert log_of(tmp_path / "new") == log_of(root)


def test_a_log_far_away_lies_aside(tmp_path: Path) -> None:
    root = unpack(STORE, tmp_path)
    far = image(tmp_path, fake(1 << 50, b"", crc=0), "far")
    done = salvaged(tmp_path / "new", root / "commitlog", far)
    assert log_of(tmp_path / "new") == log_of(root)
    assert [run.position for layer in done.aside for run in layer.runs] == [1 << 50]


def test_sizes_of_files_are_told_or_asked_for(tmp_path: Path) -> None:
    """Without names BLANKs tell; a size that would cut records is refused before anything is made."""
    root = unpack(STORE, tmp_path)
    names = sorted((root / "commitlog").iterdir())
    dump = image(tmp_path, b"".join(path.read_bytes() for path in names), "core")
    assert salvaged(tmp_path / "new", dump).file_bytes == names[0].stat().st_size
    small = SMALL.with_set(["mappedFileSizeCommitLog=65536"])
    with pytest.raises(InvalidInput):
        salvaged(tmp_path / "other", dump, config=small)
    assert not (tmp_path / "other").exists()


def test_what_a_dledger_log_holds_has_no_place_of_its_own(tmp_path: Path) -> None:
    root = unpack("4.9.7-dledger", tmp_path)
    with pytest.raises(Refused, match="compact"):
        salvaged(tmp_path / "new", root)
    assert not (tmp_path / "new").exists()


def test_a_large_hole_is_closed_in_pieces(tmp_path: Path) -> None:
    """The log begins with 10 MiB that nobody has any more, and ends with more of them."""
    chance, size = rng("large hole"), 32 << 20
    first, last = (fake(at << 20, b"x", crc=crc31(b"x"), queue_offset=at) for at in (10, 30))
    path = image(tmp_path, noise(chance, 100).join([b"", first, last, b""]))
    config = SMALL.with_set([f"mappedFileSizeCommitLog={size}"])
    done = salvaged(tmp_path / "new", path, config=config)
    assert done.restored is not None
    assert (done.restored.fillers > 4, done.restored.tombstones) == (True, 29)
    assert_in_order(tmp_path / "new", config)


def test_records_that_contradict_each_other_are_left_as_they_are(tmp_path: Path) -> None:
    """Two messages of one queue offset: which is dead is not for salvage to say."""
    first, last = (fake(position, b"x", crc=crc31(b"x")) for position in (300_000, 600_000))
    path = image(tmp_path, first + bytes(100) + last)
    config = SMALL.with_set(["mappedFileSizeCommitLog=1048576"])
    done = salvaged(tmp_path / "new", path, config=config)
    assert done.restored is not None
    assert done.restored.left == MORE
    assert not done.complete


def test_queue_offsets_that_cannot_be_are_not_believed(tmp_path: Path) -> None:
    """A bit of a header flips: no tombstones for the messages that it seems to leave out."""
    offsets = (0, 1, 1 << 37, 3, 4, 1 << 40)
    records = [fake(n << 12, b"x", crc=crc31(b"x"), queue_offset=o) for n, o in enumerate(offsets)]
    path = image(tmp_path, (b"\xff" * 50).join([*records, b""]))
    config = SMALL.with_set(["mappedFileSizeCommitLog=1048576"])
    done = salvaged(tmp_path / "new", path, config=config)
    assert done.restored is not None
    assert done.restored.tombstones <= 1
    assert done.restored.unplaced == 0
    assert not done.complete


def test_targets_and_images_that_will_not_do(tmp_path: Path) -> None:
    root = unpack(STORE, tmp_path)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (root / "link").symlink_to(elsewhere)
    for target, error in ((root / "new", Refused), (root, InvalidInput), (elsewhere / "new", Refused)):
        with pytest.raises(error):
            check_target(images_of([root]), target, SalvageRequest())
    rocks = BrokerConfig({"storeType": "defaultRocksDB"})
    check_target(images_of([root]), tmp_path / "new", SalvageRequest(config=rocks))
    with pytest.raises(Unsupported, match=f"there is none yet.*mqstore repair {tmp_path / 'new'} --queues"):
        check_target(images_of([root]), tmp_path / "new", SalvageRequest(LayoutKind.COMPACT, config=rocks))
    nothing = image(tmp_path, bytes(1 << 20), "nothing")
    with pytest.raises(NotFound):
        salvaged(tmp_path / "new", nothing)
    assert not (tmp_path / "new").exists()
