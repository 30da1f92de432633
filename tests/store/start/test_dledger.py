"""What a start does to a DLedger log: where its entries end, and why; the real classes say the same in
`tests/interop/test_dledger_start.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shutil import copytree, rmtree

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.derive import offset_of
from mqstore.formats.dledger import BLANK, HEAD, HEADER_BYTES, MAGIC_BLANK
from mqstore.formats.dledger_index import UNIT_BYTES as INDEX_UNIT_BYTES
from mqstore.store.broker.load_rules import Refusal, load_files
from mqstore.store.broker.profiles import DLEDGER_LOAD, profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.layout import Layout
from mqstore.store.start.dledger import recover_entries
from mqstore.store.start.outcome import DLedgerStart
from mqstore.store.start.simulate import simulate

from ...dledger_mishaps import FILE_BYTES, STORE, entry_starts
from ...recovery_cases import sparse_copy
from ...stores import unpack


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(STORE, tmp_path_factory.mktemp("dledger"))


@pytest.fixture
def root(whole: Path, tmp_path: Path) -> Path:
    """A copy of its own."""
    return Path(copytree(whole, tmp_path / "store", copy_function=sparse_copy))


def recovered(root: Path) -> DLedgerStart | Refusal:
    snapshot = Snapshot.of(Layout.open(root))
    return recover_entries(snapshot, load_files(snapshot.log, snapshot.log_file_bytes, DLEDGER_LOAD).files)


def walked(root: Path) -> DLedgerStart:
    found = recovered(root)
    assert isinstance(found, DLedgerStart)
    return found


def files_of(root: Path) -> list[Path]:
    return sorted((root / "dledger-n0" / "data").iterdir())


def overwrite(root: Path, position: int, data: bytes) -> None:
    """Bytes at a position of the log."""
    with files_of(root)[position // FILE_BYTES].open("r+b") as file:
        file.seek(position % FILE_BYTES)
        file.write(data)


def in_last_files(root: Path) -> list[int]:
    """Numbers of entries of the last two files: no start gives up a whole file and more."""
    starts = entry_starts(files_of(root))
    two_files = (len(files_of(root)) - 2) * FILE_BYTES
    return [number for number, start in enumerate(starts) if start >= two_files][3:-3:40]


def test_a_whole_log_is_taken_to_its_last_entry(whole: Path) -> None:
    found, starts = walked(whole), entry_starts(files_of(whole))
    assert found.last == len(starts) - 1 and found.rewritten == -1
    assert found.end == found.last_end > starts[-1]


def as_zeros(root: Path, start: int, number: int) -> None:
    overwrite(root, start, bytes(HEADER_BYTES))


def as_blank(root: Path, start: int, number: int) -> None:
    overwrite(root, start, BLANK.build({"magic": MAGIC_BLANK, "size": 100}))


def field(name: str, value: int, size: int) -> Callable[[Path, int, int], None]:
    def damage(root: Path, start: int, number: int) -> None:
        overwrite(root, start + offset_of(HEAD, name), (number + value).to_bytes(size))

    return damage


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (as_zeros, "nothing but zeros follows"),
        (field("index", 1, 8), "its number does not follow"),
        (field("pos", 1 << 40, 8), "the entry names another place"),
    ],
)
def test_the_log_ends_before_an_entry_that_does_not_follow(
    damage: Callable[[Path, int, int], None], why: str, root: Path
) -> None:
    """Before the first of several."""
    starts = entry_starts(files_of(root))
    numbers = in_last_files(root)
    assert len(numbers) > 2
    for number in reversed(numbers):
        damage(root, starts[number], number)
        found = walked(root)
        assert (found.end, found.last, found.reason) == (starts[number], number - 1, why)


def test_a_start_does_not_give_up_more_than_a_file(root: Path) -> None:
    starts = entry_starts(files_of(root))
    third = (len(files_of(root)) - 3) * FILE_BYTES
    as_zeros(root, next(start for start in starts if start > third), 0)
    refused = recovered(root)
    assert isinstance(refused, Refusal) and refused.case == "dledger-too-small"


def test_a_blank_leads_to_the_next_file(root: Path) -> None:
    """What stood behind it is passed over, so the number of the next entry does not follow."""
    starts = entry_starts(files_of(root))
    number = in_last_files(root)[0]
    as_blank(root, starts[number], number)
    next_file = -(-starts[number] // FILE_BYTES) * FILE_BYTES
    found = walked(root)
    assert (found.end, found.last, found.reason) == (next_file, number - 1, "its number does not follow")


def test_an_index_that_is_lost_is_written_anew(root: Path) -> None:
    """From the first unit on that is another one; of a wrong length it stops the broker."""
    index = root / "dledger-n0" / "index" / f"{0:020d}"
    number = in_last_files(root)[0]
    with index.open("r+b") as file:
        file.seek(number * INDEX_UNIT_BYTES + 4)
        file.write(b"\xff")
    assert walked(root).rewritten == number
    with index.open("r+b") as file:
        file.truncate(100)
    refused = recovered(root)
    assert isinstance(refused, Refusal) and refused.case == "dledger-index-length" and "100 bytes" in refused.reason
    rmtree(index.parent)
    found = walked(root)
    assert found.rewritten == 0, "no file fits, so the walk begins with the first one"


def test_a_hole_between_files_stops_the_broker(root: Path) -> None:
    files_of(root)[1].unlink()
    refused = recovered(root)
    assert isinstance(refused, Refusal) and refused.case == "dledger-hole"
    assert refused.path == str(files_of(root)[1])


@pytest.mark.parametrize(
    ("text", "number"), [("committedIndex=7\n", 7), ("committedIndex=x\n", -1), ("endIndex=5\n", -1), ("", -1)]
)
def test_what_is_committed_is_what_the_member_says(text: str, number: int, root: Path) -> None:
    """Nothing where it says no number."""
    (root / "dledger-n0" / "checkpoint").write_text(text)
    starts = entry_starts(files_of(root))
    assert walked(root).committed == (starts[number + 1] if number >= 0 else -1)


def test_queues_are_cut_with_the_log(root: Path) -> None:
    """What the log has lost no queue names after the start."""
    starts = entry_starts(files_of(root))
    number = in_last_files(root)[0]
    as_zeros(root, starts[number], number)
    outcome = simulate(Snapshot.of(Layout.open(root)), profile_of("5.3"))
    assert not outcome.refusal and outcome.log_end == starts[number]
    assert outcome.queues
    for queue in outcome.queues.values():
        assert queue.max_physical <= starts[number]


def test_queues_cut_before_what_was_just_dispatched_get_all_units_again(root: Path) -> None:
    """A leader killed under load: its last units are not written yet, and its checkpoint is older than the end at which
    a crash cuts the queues (B9).
    """
    files_of(root)[-1].unlink()
    (root / "dledger-n0" / "checkpoint").unlink()
    queues = simulate(Snapshot.of(Layout.open(root)), profile_of("5.3")).queues
    wanted = {key: queue.units_at(np.arange(queue.max_offset)).tobytes() for key, queue in queues.items()}
    for queue in queues.values():
        file = queue.files[-1]
        assert file.entry is not None
        with Path(file.entry.path).open("r+b") as stream:
            stream.seek(file.wrote - UNIT_BYTES)
            stream.write(bytes(file.entry.size - file.wrote + UNIT_BYTES))
    (root / "abort").touch()
    again = simulate(Snapshot.of(Layout.open(root)), profile_of("5.3")).queues
    assert {key: queue.units_at(np.arange(queue.max_offset)).tobytes() for key, queue in again.items()} == wanted
