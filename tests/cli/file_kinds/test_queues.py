"""Queues at or below a path: which ones there are, and what lies beside them."""

from __future__ import annotations

from pathlib import Path

from mqstore.cli.file_kinds.queues import beside, ends, queue_files
from mqstore.store.inspect.recognise import Recognised
from mqstore.store.queues.read import QueueSummary


def told(path: Path) -> list[tuple[str | None, int | None, list[str]]]:
    """Topic, queue and files of each."""
    found = []
    for topic, queue_id, files in queue_files(Recognised(path, "consume-queue", "")):
        with files:
            found.append((topic, queue_id, [Path(file.path).name for file in files.files]))
    return found


def queue(folder: Path, name: str) -> Path:
    path = folder / name / f"{0:020}"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(20))
    return path


def test_queues_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Of a store, of a topic, and of a topic that was copied; strangers among them are passed over."""
    files = [queue(tmp_path, f"consumequeue/a/{number}") for number in (10, 2)]
    (tmp_path / "consumequeue" / "a" / "notes").mkdir()
    here = [("a", number, [files[0].name]) for number in (2, 10)]
    assert told(tmp_path / "consumequeue") == told(tmp_path / "consumequeue" / "a") == here
    assert told(files[0]) == told(files[0].parent) == here[1:]
    (tmp_path / "consumequeue" / "a").rename(tmp_path / "copy")
    assert told(tmp_path / "copy") == [("copy", number, [files[0].name]) for number in (2, 10)]
    assert told(tmp_path / "copy" / "10") == [(None, None, [files[0].name])]


def test_beside_a_queue_without_a_place_is_nothing(tmp_path: Path) -> None:
    path = queue(tmp_path, "store/consumequeue/a/0")
    what = Recognised(path, "consume-queue", "")
    assert beside(what, "consumequeue_ext", "a", 0) is None
    ext = queue(tmp_path, "store/consumequeue_ext/a/0").parent
    assert beside(what, "consumequeue_ext", "a", 0) == ext
    assert beside(what, "consumequeue_ext", "a", 1) is None
    assert beside(what, "consumequeue_ext", None, None) is None
    copy = tmp_path / "copy"
    path.rename(copy)
    assert beside(Recognised(copy, "consume-queue", ""), "consumequeue_ext", "a", 0) is None


def test_ends_of_one_queue_and_sums_of_others() -> None:
    one = QueueSummary("", 0, 5, 9)
    assert ends([one]) == {"topic": None, "queue_id": None, "min_offset": 5, "max_offset": 9}
    assert ends([]) == {"topics": 0, "queues": 0, "messages": 0, "highest_position": 0}
    other = QueueSummary("a", 1, 0, 3, 400, 700)
    assert ends([other])["highest_position"] == 700
    assert ends([one, other]) == {"topics": 2, "queues": 2, "messages": 7, "highest_position": 700}
