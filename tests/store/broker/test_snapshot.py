"""What lies on disk: odd names, links that lead nowhere, files that end too early, the order of a Java set."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.snapshot import (
    DirectoryEntry,
    FileBytes,
    QueueId,
    _held_still,
    can_have_files,
    in_java_order,
    list_entries,
    list_queues,
)
from mqstore.store.errors import Missing, StoreError

DATA = bytes(range(1, 256))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file without a zero."""
    found = tmp_path_factory.mktemp("content") / "file"
    found.write_bytes(DATA)
    return str(found)


@given(st.none() | st.integers(0, 300), st.integers(-300, 300), st.integers(-300, 300))
def test_slices_of_a_file_are_those_of_its_bytes(path: str, stop: int | None, begin: int, end: int) -> None:
    """From the byte on where it was still being written they are zeros."""
    kept = DATA if stop is None else DATA[:stop].ljust(len(DATA), b"\0")
    content = FileBytes(path, stop=stop)
    assert len(content) == len(DATA)
    assert content[begin:end].tobytes() == kept[begin:end]
    assert content[begin:].tobytes() == kept[begin:]


def test_a_file_that_is_shorter_than_it_was_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Missing):
        FileBytes(str(tmp_path / "gone"))
    path = tmp_path / "file"
    path.write_bytes(DATA)
    content = FileBytes(str(path))
    path.write_bytes(DATA[:100])
    assert content[90:100].tobytes() == DATA[90:100]
    with pytest.raises(StoreError):
        content[90:110]


def test_directories_that_are_no_queues_are_passed_over(tmp_path: Path) -> None:
    """As Java reads numbers: with a sign, with zeros before; not those of other scripts, nor beyond an int."""
    root = tmp_path / "consumequeue"
    assert [*list_queues(root)] == []
    for name in ("0", "+3", "-1", "007", "x", "1.5", str(1 << 31), "\u0663"):
        (root / "T" / name).mkdir(parents=True, exist_ok=True)
    (root / "T" / "5").touch()
    (root / "file").touch()
    (root / "T" / "0" / "00").write_bytes(b"abc")
    found = dict(list_queues(root))
    assert found.keys() == {QueueId("T", number) for number in (0, 3, -1, 7)}
    assert [(entry.name, entry.size) for entry in found[QueueId("T", 0)]] == [("00", 3)]


def test_a_link_that_leads_nowhere_has_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "b").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to(tmp_path / "a")
    found = [(entry.name, entry.directory) for entry in list_entries(tmp_path)]
    assert found == [("a", True), ("b", False), ("c", True)]
    assert list_entries(tmp_path)[1].size == 0
    assert list_entries(tmp_path / "nowhere") == []


@pytest.mark.parametrize("topic", ["", "..", ".", "a/b", "/a", "a\0", "x" * 300])
def test_topics_of_damaged_records_are_no_directories(topic: str) -> None:
    assert not can_have_files(QueueId(topic, 0))


def test_files_of_a_log_that_is_being_written_count_up_to_a_position() -> None:
    files = [DirectoryEntry(f"{start:020d}", "", 100, False) for start in (0, 100, 200)]
    odd = DirectoryEntry("odd", "", 100, False)
    held = [*_held_still([*files, odd], 150)]
    assert [(entry.name, entry.counting) for entry in held] == [(files[0].name, 100), (files[1].name, 50), ("odd", 100)]
    assert [entry.counting for entry in _held_still(files, 200)] == [100, 100, 0]


@given(st.lists(st.sampled_from("abcdefghijklmnopqrstuvwxyz/0123456789"), unique=True, max_size=11))
def test_names_of_one_letter_are_in_the_order_of_a_hash_set(names: list[str]) -> None:
    """Java's hash of one is its code; a set of up to eleven has sixteen buckets, and keeps the order in each."""
    assert in_java_order(names) == sorted(names, key=lambda name: ord(name) % 16)
