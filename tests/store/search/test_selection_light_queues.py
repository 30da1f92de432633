"""Messages of LMQs, which are stored under other topics: found without their queues as with them (spec 2.9)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.errors import NotFound, StoreError
from mqstore.store.log.batch import messages
from mqstore.store.log.commit_log import Batch
from mqstore.store.search.find import Address, Finder, find, offset_at
from mqstore.store.search.follow import Follower
from mqstore.store.search.log_search import search_log
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import FoundMessage, StoreReader, silent
from mqstore.store.settings import generation, options

from .searched import Notes, positions

STORES = ["4.9.7-lmq", "5.3.3-lmq"]
LIGHT, LONG = "%LMQ%a", "%LMQ%long-namelong-namelong-namelong-namelong-name"


def without_queues(root: Path, to: Path) -> Path:
    copy = Path(shutil.copytree(root, to))
    shutil.rmtree(copy / "consumequeue")
    return copy


@pytest.mark.parametrize("name", STORES)
def test_a_scan_finds_what_the_queues_name(name: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    bare = without_queues(store(name), tmp_path / "bare")
    with StoreReader(store(name)) as whole, StoreReader(bare) as scanned:
        for topic in (LIGHT, "%LMQ%b", LONG, "mqtt"):
            for asked in (Selection(topic=topic), Selection(topic=topic, queue_id=0)):
                notes = Notes()
                expected = positions(find(whole, asked, note=notes))
                assert expected and notes == [], topic
                assert positions(find(scanned, asked)) == expected, topic
                assert positions(find(scanned, asked, reverse=True)) == expected[::-1], topic
            for place in ((0, 1), (7, 5)):
                asked = Selection(topic=topic, queue_id=0)
                some = positions(find(whole, asked, offset=place[0], count=place[1]))
                assert positions(find(scanned, asked, offset=place[0], count=place[1])) == some, topic


@pytest.mark.parametrize("name", STORES)
def test_a_light_queue_that_is_lost(name: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    """No file but its own knows of it: topics.json has none."""
    copy = Path(shutil.copytree(store(name), tmp_path / "copy"))
    shutil.rmtree(copy / "consumequeue" / LIGHT)
    every, one, notes = Selection(topic=LIGHT), Selection(topic=LIGHT, queue_id=0), Notes()
    with StoreReader(store(name)) as whole, StoreReader(copy) as lost:
        expected = list(find(whole, every))
        assert positions(find(lost, every, note=notes)) == [found.message.position for found in expected]
        assert notes == [f"there is no LMQ {LIGHT}: scanning the log"]
        assert positions(find(lost, one, offset=7, count=5)) == positions(find(whole, one, offset=7, count=5))
        assert offset_at(lost, LIGHT, 0, expected[5].message.store_timestamp) == 5
        addresses = [Address(topic=LIGHT, queue_id=0, queue_offset=number) for number in (3, len(expected))]
        with Finder(lost, silent) as finder:
            found, none = finder.find(addresses)
        assert isinstance(found, FoundMessage) and found.message == expected[3].message
        assert isinstance(none, NotFound)
        assert not list(find(lost, Selection(topic="%LMQ%none")))
        with pytest.raises(NotFound, match="no such topic: none"):
            list(find(lost, Selection(topic="none")))


def test_numbers_are_those_of_the_light_queue(store: Callable[[str], Path], tmp_path: Path) -> None:
    bare = without_queues(store("5.3.3-lmq"), tmp_path / "bare")
    with StoreReader(store("5.3.3-lmq")) as whole, StoreReader(bare) as scanned:
        times = [one.message.store_timestamp for one in find(whole, Selection(topic=LIGHT))]
        for time_ms in (0, times[5], times[-1], times[-1] + 1):
            assert offset_at(scanned, LIGHT, 0, time_ms) == offset_at(whole, LIGHT, 0, time_ms)


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("topic", [LIGHT, "%LMQ%*", "*", "mq*", "copy_topic", "%LMQ%none"])
def test_one_message_and_columns_agree(name: str, topic: str, store: Callable[[str], Path]) -> None:
    with StoreReader(store(name)) as opened:
        for queue_id in (None, 0, 1):
            asked = Selection(topic=topic, queue_id=queue_id).of_queues(opened.layout)
            for item in opened.log.scan():
                if not isinstance(item, Batch):
                    continue
                told, numbers = asked.mask(item).tolist(), asked.numbers(item).tolist()
                places = [asked.place_of(message) for message in messages(item)]
                assert told == [place is not None for place in places]
                assert all(place is None or place[1] == number for place, number in zip(places, numbers, strict=True))


def test_4_9_knows_further_queues_of_any_name(store: Callable[[str], Path], tmp_path: Path) -> None:
    bare, asked = without_queues(store("4.9.7-lmq"), tmp_path / "bare"), Selection(topic="copy_topic")
    with StoreReader(store("4.9.7-lmq")) as whole:
        expected = positions(find(whole, asked))
        assert expected and not positions(search_log(whole, asked, note=Notes()))
    with StoreReader(bare, {"enableMultiDispatch": True}) as told:
        assert positions(find(told, asked)) == expected
    with StoreReader(bare, {"enableMultiDispatch": False}) as off:
        assert not positions(search_log(off, Selection(topic=LIGHT), note=Notes()))


@pytest.mark.parametrize("name", STORES)
def test_a_plain_topic_costs_no_look_at_the_store(
    name: str, store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the version of the broker nor what shows LMQs is looked for: that opens many files."""
    looks = list[str]()
    monkeypatch.setattr(generation, "_guess", lambda *_: looks.append("version"))
    monkeypatch.setattr(options, "shown_multi_dispatch", lambda *_: looks.append("queues"))
    for topic in ("mqtt", "plain", "mq*"):
        with StoreReader(store(name)) as opened:
            asked = Selection(topic=topic).of_queues(opened.layout)
            assert asked.further is None
            assert topic == "plain" or list(find(opened, asked._replace(key="key1")))
    assert looks == []


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("none")


DAMAGE = [("checkpoint", _directory), ("checkpoint", _pipe), ("config", _file)]


@pytest.mark.parametrize(("part", "damage"), DAMAGE)
def test_damage_elsewhere_stops_no_reader(
    part: str, damage: Callable[[Path], None], store: Callable[[str], Path], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(store("5.3.3-lmq"), tmp_path / "copy"))
    damage(copy / part)
    given = {"enableMultiDispatch": True}
    with StoreReader(store("5.3.3-lmq")) as whole, StoreReader(copy) as hurt, StoreReader(copy, given) as told:
        for topic in ("mqtt", LIGHT):
            for asked in (Selection(topic=topic, key="key1"), Selection(topic=topic)):
                expected = positions(search_log(whole, asked, note=Notes()))
                assert expected
                assert positions(search_log(hurt, asked, note=Notes())) == expected
                assert positions(search_log(told, asked, note=Notes())) == expected
        if damage is not _directory:  # that is a finding of its own
            with pytest.raises(StoreError):
                generation.generation_of(hurt.layout)


def test_a_key_under_a_light_topic_comes_from_the_index(store: Callable[[str], Path]) -> None:
    notes = Notes()
    with StoreReader(store("5.3.3-lmq")) as opened:
        for asked in (Selection(key="key1"), Selection(unique_key="C000020272644E0E2F2A66973D090001")):
            (own,) = find(opened, asked._replace(topic="mqtt"))
            (found,) = find(opened, asked._replace(topic=LIGHT), note=notes)
            assert (found.message.position, found.via) == (own.message.position, own.via)
            assert not list(find(opened, asked._replace(topic="%LMQ%none")))
    assert notes == []


def test_a_follower_of_a_light_topic(store: Callable[[str], Path]) -> None:
    with StoreReader(store("5.3.3-lmq")) as opened:
        asked = Selection(topic=LIGHT).of_queues(opened.layout)
        follower, found = Follower(opened.layout, 0, Notes()), list[int]()
        while (batch := follower.poll()) is not None:
            found += asked.wanted(batch).position.tolist()
        assert found == positions(find(opened, Selection(topic=LIGHT)))


def test_a_topic_alone_is_that_of_the_records(store: Callable[[str], Path]) -> None:
    """As Spark and Arrow ask: a message is of one topic, and counts once."""
    with StoreReader(store("5.3.3-lmq")) as opened:
        assert not any(Selection(topic=LIGHT).mask(b).any() for b in opened.log.scan() if isinstance(b, Batch))
