"""Searches in queues that have holes: what can be read is found, whatever lies around it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import pytest

from mqstore.formats import quick
from mqstore.formats.consume_queue import UNIT
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import no_topic
from mqstore.store.errors import NotFound
from mqstore.store.put.new_message import NewMessage
from mqstore.store.queues.read import first_at
from mqstore.store.search.find import find, offset_at
from mqstore.store.search.selection import Selection, TimeRange
from mqstore.store.search.store import FoundMessage, StoreReader

from ... import stores
from ...damage import cut_units
from ..put.writing import NOW, TINY, writer
from .searched import Notes, positions

UNIT_BYTES = UNIT.sizeof()
UNIT_OF_PRE_FILL = quick.UNIT.pack(*quick.PRE_FILL)
TOPIC, QUEUE = "logs", 0


def at(folder: Path, position: int) -> tuple[Path, int]:
    """The file of a folder that holds a position, and the byte in it."""
    file = max((path for path in folder.iterdir() if int(path.name) <= position), key=lambda path: int(path.name))
    return file, position - int(file.name)


def zero(folder: Path, position: int, size: int) -> None:
    file, offset = at(folder, position)
    with file.open("r+b") as out:
        out.seek(offset)
        out.write(bytes(size))


def lose_units(root: Path, numbers: list[int]) -> None:
    """Zero some units of the queue."""
    for number in numbers:
        zero(root / "consumequeue" / TOPIC / str(QUEUE), number * UNIT_BYTES, UNIT_BYTES)


def lose_records(root: Path, numbers: list[int]) -> None:
    """Zero the records that some units name."""
    for number in numbers:
        file, offset = at(root / "consumequeue" / TOPIC / str(QUEUE), number * UNIT_BYTES)
        unit = UNIT.parse(file.read_bytes()[offset:])
        zero(root / "commitlog", unit.physical_offset, unit.size)


@pytest.mark.parametrize("lose", [lose_units, lose_records])
@pytest.mark.parametrize("lost", [[45], [44, 45, 46], [0, 22, 45, 67], list(range(10, 80)), list(range(91))])
def test_times_of_a_queue_with_holes(lose: Callable[[Path, list[int]], None], lost: list[int], tmp_path: Path) -> None:
    """Every message that can be read is found by its time, as by a filter over all of them."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    lose(root, lost)
    with StoreReader(root) as store:
        every = list(find(store, Selection(TOPIC, QUEUE)))
        scanned = lose is lose_units and len(lost) == 91  # nothing is left to tell of the others
        assert len(every) == (91 if scanned else 91 - len(lost))
        times = sorted({one.message.store_timestamp for one in every})
        for time_ms in [0, *times[::7], *(each + 1 for each in times[-2:])]:
            since = find(store, Selection(TOPIC, QUEUE, times=TimeRange(since_ms=time_ms)))
            assert positions(since) == [o.message.position for o in every if o.message.store_timestamp >= time_ms]
            until = find(store, Selection(TOPIC, QUEUE, times=TimeRange(until_ms=time_ms)))
            assert positions(until) == [o.message.position for o in every if o.message.store_timestamp < time_ms]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("queue_id", [QUEUE, None])
@pytest.mark.parametrize(
    ("lose", "said"),
    [
        (lose_units, f"3 units of {TOPIC} are missing or damaged"),
        (lose_records, f"3 units of {TOPIC} point at no record"),
    ],
)
def test_what_is_left_out_is_said_before_what_follows(
    lose: Callable[[Path, list[int]], None], said: str, queue_id: int | None, reverse: bool, tmp_path: Path
) -> None:
    """A caller may take only the first messages."""
    root, notes = stores.unpack("4.9.7-clean", tmp_path), Notes()
    lose(root, [86, 87, 88] if reverse else [2, 3, 4])
    with StoreReader(root) as store:
        found = find(store, Selection(TOPIC, queue_id), reverse=reverse, note=notes)
        assert len(list(islice(found, 12))) == 12
        assert len(notes) == 1 and notes[0].startswith(said)


def test_damage_of_the_log_is_said_before_what_follows(tmp_path: Path) -> None:
    root, notes = stores.unpack("4.9.7-clean", tmp_path), Notes()
    lose_records(root, [1, 3, 5, 20, 40])
    with StoreReader(root) as store:
        assert next(find(store, Selection(TOPIC + "*"), note=notes)) and notes == []
        list(find(store, Selection(TOPIC + "*"), note=notes))
        assert [note.split(",")[0] for note in notes] == ["1 damaged range", "2 damaged ranges", "2 damaged ranges"]


def test_a_long_hole_is_not_read_unit_by_unit(tmp_path: Path) -> None:
    """How often a record is asked for its time goes with the logarithm of the queue."""
    root = stores.unpack("4.9.7-clean", tmp_path)
    asked: list[int] = []

    def never(position: int) -> None:
        asked.append(position)

    with StoreReader(root) as store, store.queues.open(TOPIC, QUEUE) as queue:
        summary = store.queue_summary(queue)
        assert first_at(queue, summary, 1, never) == (summary.min_offset, summary.max_offset)
    assert len(asked) < 20


HOUR_MS = 3_600_000


def by_time(store: StoreReader, topic: str | None, times: TimeRange) -> tuple[int, Notes]:
    """How many messages of these times a search gives, and what it says."""
    notes = Notes()
    return len(positions(find(store, Selection(topic, times=times), note=notes))), notes


@pytest.fixture(params=[True, False], ids=["large", "small"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the logs of a test count as large."""
    if request.param:
        monkeypatch.setattr("mqstore.store.search.log_search.SMALL_LOG_BYTES", 0)
    return bool(request.param)


@pytest.mark.parametrize(
    ("ahead_ms", "file_size"), [(8 * HOUR_MS, 16384), (-8 * HOUR_MS, 16384), (8 * HOUR_MS, 1 << 20)]
)
def test_times_of_a_clock_that_was_wrong_for_a_while(
    ahead_ms: int, file_size: int, large: bool, tmp_path: Path
) -> None:
    """An hour, an hour by a wrong time zone, an hour: each time is found with the topic as without it."""
    times = [NOW + n * 36_000 + (ahead_ms if 100 <= n < 200 else 0) for n in range(300)]
    config = BrokerConfig({**TINY, "mappedFileSizeCommitLog": str(file_size)})
    with writer(tmp_path, config=config) as out:
        for number, time_ms in enumerate(times):
            out.append(NewMessage(b"T", b"x" * 40, queue_id=number % 2, store_timestamp=time_ms))
    with StoreReader(tmp_path, config) as store:
        for begin_ms in times[::23]:
            asked = TimeRange(begin_ms, begin_ms + HOUR_MS // 2)
            wanted = sum(time_ms in asked for time_ms in times)
            for topic in ("T", None):
                found, notes = by_time(store, topic, asked)
                assert found == wanted and not any("left out" in note for note in notes)
                assert large or not notes


@pytest.mark.parametrize("with_index", [True, False])
def test_a_clock_that_was_wrong_for_less_than_a_file(with_index: bool, large: bool, tmp_path: Path) -> None:
    """Records at which files of the log begin do not show it, those of the index may: else they are missed."""
    times = [NOW + n * 36_000 + (12 * HOUR_MS if 80 <= n < 130 else 0) for n in range(300)]
    config = BrokerConfig({**TINY, "mappedFileSizeCommitLog": "16384"})
    with writer(tmp_path, config=config) as out:
        for time_ms in times:
            out.append(NewMessage(b"T", b"x" * 120, store_timestamp=time_ms, properties=b"KEYS\1key\2"))
    if not with_index:
        shutil.rmtree(tmp_path / "index")
    with StoreReader(tmp_path, config) as store:
        assert len(store.log_files.files) > 3
        for topic in ("T", None):
            found, notes = by_time(store, topic, TimeRange(times[80], times[129] + 1))
            assert (found == 50) if with_index or not large else (found < 50)
            assert bool(notes) == (large and with_index)


def test_times_in_no_order(large: bool, tmp_path: Path) -> None:
    times = [NOW + n * 7919 % 300 * HOUR_MS for n in range(300)]
    with writer(tmp_path, config=BrokerConfig(TINY)) as out:
        for time_ms in times:
            out.append(NewMessage(b"T", b"x" * 120, store_timestamp=time_ms))
    with StoreReader(tmp_path, BrokerConfig(TINY)) as store:
        for topic in ("T", None):
            found, notes = by_time(store, topic, TimeRange(NOW, NOW + 48 * HOUR_MS))
            assert (found, [note[:39] for note in notes]) == (48, ["the store times of the log step back by"] * large)


@pytest.mark.parametrize("large", [True], indirect=True)
def test_a_clock_in_order_leaves_few_units(large: bool, tmp_path: Path) -> None:
    """And asks few records of their time."""
    assert large
    times = [NOW + n * HOUR_MS for n in range(1000)]
    config = BrokerConfig({**TINY, "mappedFileSizeCommitLog": str(1 << 20)})
    with writer(tmp_path, config=config) as out:
        for time_ms in times:
            out.append(NewMessage(b"T", b"", store_timestamp=time_ms))
    asked: list[int] = []

    class Asked(StoreReader):
        def store_time(self, position: int) -> int | None:
            asked.append(position)
            return super().store_time(position)

    with Asked(tmp_path, config) as store:
        found, notes = by_time(store, "T", TimeRange(times[734], times[736]))
        assert found == 2 and not notes
        assert store.searched.units < 20 and len(asked) < 100


def places(name: str, topic: str, queue_id: int | None = None) -> list[int]:
    """Where the messages of a topic, or of one queue of it, lie in the log of a store."""
    own = (r for r in stores.messages(name) if r["topic"] == topic and queue_id in (None, r["queue_id"]))
    return [record["physical_offset"] for record in own]


@pytest.mark.parametrize("configured", [True, False])
def test_a_topic_with_a_directory_but_no_queue_in_it(configured: bool, tmp_path: Path) -> None:
    """It has no queues, as one without a directory: the log is scanned."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "consumequeue" / TOPIC / str(QUEUE))
    for path in () if configured else (root / "config").glob("topics.json*"):
        path.unlink()
    why = (
        "is in topics.json, but has no consume queues" if configured else "has a directory, but no consume queues in it"
    )
    notes = Notes()
    with StoreReader(root) as store:
        for queue_id in (None, QUEUE):
            notes.clear()
            found = find(store, Selection(TOPIC, queue_id), note=notes)
            assert (positions(found), notes) == (places("5.3.3-clean", TOPIC), [f"{TOPIC} {why}: scanning the log"])


def test_the_name_that_was_asked_for_is_never_suggested(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    (root / "consumequeue" / "order").mkdir()
    with pytest.raises(NotFound, match="no such topic: order") as raised:
        raise no_topic(root / "consumequeue", "order")
    assert (raised.value.hint or "").startswith("did you mean orders?; if the topic was deleted")


def test_directories_of_batch_and_compaction_queues_without_a_queue(tmp_path: Path) -> None:
    """The queues are elsewhere."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    for folder in ("batchconsumequeue", "compaction/compactionCq"):
        (root / folder / TOPIC).mkdir(parents=True)
    notes = Notes()
    with StoreReader(root) as store:
        assert store.layout.compaction_queues == root / "compaction/compactionCq"
        assert (positions(find(store, Selection(TOPIC), note=notes)), notes) == (places("5.3.3-clean", TOPIC), [])


@pytest.mark.parametrize("lose", ["files", "units", "prefilled"])
def test_a_queue_without_a_unit(lose: str, tmp_path: Path) -> None:
    """It counts as one that is missing: asked for alone it is scanned for, of the topic its messages are left out."""
    name, root = "5.3.3-clean", stores.unpack("5.3.3-clean", tmp_path)
    for path in (root / "consumequeue" / "orders" / "3").iterdir():
        if lose == "files":
            path.unlink()
        else:
            fill = bytes(UNIT_BYTES) if lose == "units" else UNIT_OF_PRE_FILL
            path.write_bytes(fill * (path.stat().st_size // UNIT_BYTES))
    rest = sorted({*places(name, "orders")} - {*places(name, "orders", 3)})
    notes = Notes()
    with StoreReader(root) as store:
        assert positions(find(store, Selection("orders"), note=notes)) == rest
        assert len(notes) == 1 and notes[0].startswith("orders has no unit in queue 3: their messages are left out")
        scan = "queue 3 of orders has no unit: scanning the log"
        notes.clear()
        assert positions(find(store, Selection("orders", 3), note=notes)) == places(name, "orders", 3)
        assert notes == [scan]
        notes.clear()
        late = max(r["store_timestamp"] for r in stores.messages(name) if (r["topic"], r["queue_id"]) == ("orders", 3))
        assert offset_at(store, "orders", 3, late + 1, note=notes) == len(places(name, "orders", 3))
        assert notes == [scan]


def test_a_topic_without_a_unit(tmp_path: Path) -> None:
    """All of its queues are so: the log is scanned. A queue that had no message yet begins at 0, as a broker says."""
    name, root = "5.3.3-clean", stores.unpack("5.3.3-clean", tmp_path)
    for path in (root / "consumequeue" / TOPIC / str(QUEUE)).iterdir():
        path.unlink()
    (root / "consumequeue" / TOPIC / "1").mkdir()
    why = f"no consume queue of {TOPIC} has a unit: scanning the log"
    notes = Notes()
    with StoreReader(root) as store:
        assert (positions(find(store, Selection(TOPIC), note=notes)), notes) == (places(name, TOPIC), [why])
        notes.clear()
        assert (offset_at(store, TOPIC, 1, 0, note=notes), notes) == (0, [why])


def found_with_notes(store: StoreReader, selection: Selection, reverse: bool = False) -> tuple[list[int], list[str]]:
    notes = Notes()
    found = positions(find(store, selection, reverse=reverse, note=notes))
    return found[::-1] if reverse else found, notes


def test_the_first_file_of_a_queue_is_lost(tmp_path: Path) -> None:
    """The log begins at 0, so nothing has expired."""
    name, root = "5.3.3-clean", stores.unpack("5.3.3-clean", tmp_path)
    (root / "consumequeue" / TOPIC / str(QUEUE) / ("0" * 20)).unlink()
    every, begin = places(name, TOPIC), f"{TOPIC}: queue {QUEUE} begins at 50"
    times = sorted(r["store_timestamp"] for r in stores.messages(name) if r["topic"] == TOPIC)
    with StoreReader(root) as store:
        found, notes = found_with_notes(store, Selection(TOPIC))
        assert (found, len(notes)) == (every[50:], 1)
        assert notes[0].startswith(
            f"{begin}, but the log has more of its messages, from {every[0]} on: the other messages are left out; "
        )
        one = Selection(TOPIC, QUEUE)
        for reverse in (False, True):
            found, notes = found_with_notes(store, one, reverse)
            assert (found, notes) == (every, [f"{begin}: scanning the log for the other messages"])
        found, notes = found_with_notes(store, one._replace(times=TimeRange(since_ms=times[-1])))
        assert (found[-1], notes) == (every[-1], []), "what is left out is not wanted"
        notes = Notes()
        notes = Notes()
        answers = [offset_at(store, TOPIC, QUEUE, time_ms, note=notes) for time_ms in (0, times[-1])]
        assert (
            answers[0] == 50 and len(notes) == 1 and notes[0].endswith("the times of its other messages do not count")
        )
        for offset, count in ((20, 70), (45, 10), (45, 5)):
            notes.clear()
            found = positions(find(store, one, offset=offset, count=count, note=notes))
            assert (found, len(notes)) == (every[offset : offset + count], 1)


def cut_file(last: Path) -> None:
    last.write_bytes(last.read_bytes()[: 7 * UNIT_BYTES + 3])


def cut_with_garbage(last: Path) -> None:
    data = last.read_bytes()
    last.write_bytes(data[: 7 * UNIT_BYTES] + b"\xff" * 30 + bytes(len(data) - 7 * UNIT_BYTES - 30))


def cut_with_zeros(last: Path) -> None:
    data = last.read_bytes()
    last.write_bytes(data[: 7 * UNIT_BYTES] + bytes(len(data) - 7 * UNIT_BYTES))


@pytest.mark.parametrize("cut", [Path.unlink, cut_file, cut_with_garbage, cut_with_zeros])
@pytest.mark.parametrize("consumed", [True, False])
def test_the_end_of_a_queue_is_lost(cut: Callable[[Path], None], consumed: bool, tmp_path: Path) -> None:
    """What tells so: a group, a full file without a next one, bytes that are no unit."""
    name, root = "5.3.3-clean", stores.unpack("5.3.3-clean", tmp_path)
    cut(root / "consumequeue" / TOPIC / str(QUEUE) / f"{1000:020}")
    for path in (root / "config").glob("consumerOffset*"):
        path.write_text(json.dumps({"offsetTable": {f"{TOPIC}@g": {str(QUEUE): 91}} if consumed else {}}))
    every, left = places(name, TOPIC), 50 if cut is Path.unlink else 57
    told = f"{TOPIC}: queue {QUEUE} ends at {left}, but "
    told += "offset 91 was reached" if consumed else f"the log has more of its messages, from {every[left]} on"
    times = sorted(r["store_timestamp"] for r in stores.messages(name) if r["topic"] == TOPIC)
    silent = cut is cut_with_zeros and not consumed  # as a queue that has no more
    with StoreReader(root) as store:
        found, notes = found_with_notes(store, Selection(TOPIC))
        assert (found, len(notes)) == (every[:left], 0 if silent else 1)
        assert silent or notes[0].startswith(f"{told}: the other messages are left out; ")
        if silent:
            return
        late = TimeRange(since_ms=times[-5])
        assert len(found_with_notes(store, Selection(TOPIC, times=late))[1]) == 1
        notes = Notes()
        assert [offset_at(store, TOPIC, QUEUE, time_ms, note=notes) for time_ms in (0, times[-1])] == [0, left]
        assert len(notes) == 1 and notes[0].startswith(f"{told}: the times of its other messages")
        one = Selection(TOPIC, QUEUE)
        for reverse in (False, True):
            found, notes = found_with_notes(store, one, reverse)
            assert (found, len(notes)) == (every, 1) and notes[0].endswith(": scanning the log for the other messages")
        assert found_with_notes(store, one._replace(times=late))[0] == every[-5:]
        for offset, count in ((40, 20), (2, 80), (60, 5), (10, 5)):
            for reverse in (False, True):
                notes = Notes()
                found = positions(find(store, one, offset=offset, count=count, reverse=reverse, note=notes))
                assert (found[::-1] if reverse else found) == every[offset : offset + count]
                assert len(notes) == (offset != 10)


def test_a_queue_that_is_cut_before_the_others_are_behind(tmp_path: Path) -> None:
    """The first message behind all queues is not the next one of the queue: more is missing."""
    name, root = "5.3.3-clean", stores.unpack("5.3.3-clean", tmp_path)
    end = max(r["physical_offset"] for r in stores.messages(name) if r["topic"] == TOPIC)
    for path in (root / "config").glob("consumerOffset*"):
        path.unlink()
    for path in (root / "consumequeue").glob("*/*/*"):
        data = path.read_bytes()
        units = [data[at : at + UNIT_BYTES] for at in range(0, len(data), UNIT_BYTES)]
        kept = [unit if quick.UNIT.unpack(unit)[0] < end else bytes(UNIT_BYTES) for unit in units]
        path.write_bytes(b"".join(kept))
    cut_with_zeros(root / "consumequeue" / TOPIC / str(QUEUE) / f"{1000:020}")
    every = places(name, TOPIC)
    with StoreReader(root) as store:
        found, notes = found_with_notes(store, Selection(TOPIC, QUEUE))
        told = f"{TOPIC}: queue {QUEUE} ends at 57, but offset 89 was reached"
        assert (found, notes) == (every, [f"{told}: scanning the log for the other messages"])
        found, notes = found_with_notes(store, Selection(TOPIC))
        assert found == every[:57] and len(notes) == 2 and notes[0].startswith(told)


@pytest.mark.parametrize("reverse", [False, True])
def test_records_that_went_with_the_end_of_the_log_are_told(reverse: bool, tmp_path: Path) -> None:
    """A unit names the first of them, right behind the end of the log; those that stand alone prove none."""
    root, first, size = stores.unpack("4.9.7-clean", tmp_path), 85, 1 << 18
    with StoreReader(root) as store:
        everything = positions(find(store, Selection(topic=TOPIC)))
    zero(root / "commitlog", everything[first], 2 * size - everything[first])
    for told in (True, False):
        notes = Notes()
        with StoreReader(root) as store:
            found = positions(find(store, Selection(topic=TOPIC), reverse=reverse, note=notes))
        assert sorted(found) == everything[:first]
        lost = f"6 units of {TOPIC} point at no record, the first at {everything[first]}: left out"
        assert notes == [lost] * told
        if reverse and told:  # the three that are shown are not the newest
            few = Notes()
            with StoreReader(root) as store:
                newest = positions(islice(find(store, Selection(topic=TOPIC), reverse=True, note=few), 3))
            assert newest == everything[first - 3 : first][::-1] and few == [lost]
        lose_units(root, [first])


BATCHES, OF_BATCHES = "5.3.3-batchcq", "BatchTopic"


def numbers(found: Iterable[FoundMessage]) -> list[tuple[int, int]]:
    return [(one.message.queue_id, one.message.queue_offset) for one in found]


@pytest.mark.parametrize("reverse", [False, True])
def test_batch_queues_behind_the_log(reverse: bool, tmp_path: Path) -> None:
    """What is left out is said; a message that is asked for by its number is found."""
    root, notes = stores.unpack(BATCHES, tmp_path), Notes()
    with StoreReader(root) as store:
        every = numbers(find(store, Selection(OF_BATCHES), reverse=reverse))
    cut_units(root, 150_000)
    with StoreReader(root) as store:  # groups have consumed all messages, so there were more
        for queue_id in (0, 1):
            found = numbers(find(store, Selection(OF_BATCHES, queue_id), reverse=reverse, note=notes))
            assert found == [one for one in every if one[0] == queue_id]
            assert notes.pop().endswith("was reached: scanning the log for the other messages")
    for path in (root / "config").glob("consumerOffset.json*"):
        path.unlink()
    with StoreReader(root) as store:
        found = numbers(find(store, Selection(OF_BATCHES), reverse=reverse, note=notes))
        kept = sorted(found)
        assert found == [one for one in every if one in kept] and len(found) < len(every)
        (said,) = notes
        assert said.startswith("the queues are behind the log from ")
        for queue_id, offset in set(every) - set(found):
            notes, place = Notes(), Selection(OF_BATCHES, queue_id)
            assert numbers(find(store, place, offset=offset, count=1, note=notes)) == [(queue_id, offset)]
            assert notes == [f"{OF_BATCHES}/{queue_id} has no message {offset}: found by scanning the log"]
        with pytest.raises(NotFound):
            list(find(store, Selection(OF_BATCHES, 0), offset=len(every), count=1))


def test_a_batch_queue_without_its_first_file(tmp_path: Path) -> None:
    root, notes = stores.unpack(BATCHES, tmp_path), Notes()
    with StoreReader(root) as store:
        every = numbers(find(store, Selection(OF_BATCHES, 1)))
    next((root / "batchconsumequeue" / OF_BATCHES / "1").glob("*0000")).unlink()
    with StoreReader(root) as store:
        assert numbers(find(store, Selection(OF_BATCHES, 1), note=notes)) == every
        (said,) = notes
        assert said.startswith(f"{OF_BATCHES}: queue 1 begins at ") and said.endswith(
            "scanning the log for the other messages"
        )
        assert len(numbers(find(store, Selection(OF_BATCHES), note=notes))) > len(every)
        assert "the other messages are left out" in notes[-1]


def test_a_batch_queue_without_a_unit(tmp_path: Path) -> None:
    root, notes = stores.unpack(BATCHES, tmp_path), Notes()
    with StoreReader(root) as store:
        every = numbers(find(store, Selection(OF_BATCHES, 1)))
    for path in (root / "batchconsumequeue" / OF_BATCHES / "1").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    with StoreReader(root) as store:
        assert numbers(find(store, Selection(OF_BATCHES, 1), note=notes)) == every
        list(find(store, Selection(OF_BATCHES), note=notes))
    assert notes == [
        f"queue 1 of {OF_BATCHES} has no unit: scanning the log",
        f"{OF_BATCHES} has no unit in queue 1: their messages are left out; `mqstore dump` shows those in the log",
    ]
