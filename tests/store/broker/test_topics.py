"""topics.json: what is added, what stays, and what a crash leaves."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.broker.profiles import writer_profile
from mqstore.store.broker.topics import Topics, new_topic
from mqstore.store.disk.files import Files
from mqstore.store.errors import Refused, StoreError

from ..put.faults import CountingFiles, FailingFiles, Killed, KilledFiles


def add(files: Files, config: Path, topics: dict[str, int], version: str = "5.3") -> None:
    known = Topics.read(config)
    known.add(topics, writer_profile(version))
    known.write(files, writer_profile(version), lambda: 1_800_000_000_000)


def test_a_new_file(tmp_path: Path) -> None:
    add(Files(), tmp_path / "config", {"T": 0})
    assert (tmp_path / "config" / "topics.json").read_text() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"stateVersion":0,\n'
        '\t\t"timestamp":1800000000000\n\t},\n\t"topicConfigTable":{\n\t\t"T":{\n'
        '\t\t\t"attributes":{},\n\t\t\t"order":false,\n\t\t\t"perm":6,\n'
        '\t\t\t"readQueueNums":4,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n'
        '\t\t\t"topicName":"T",\n\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":4\n'
        "\t\t}\n\t}\n}"
    )
    assert [path.name for path in (tmp_path / "config").iterdir()] == ["topics.json"]


@pytest.mark.parametrize("name", ["4.3.1-clean", "4.9.7-clean", "5.3.3-clean", "5.5.0-clean"])
def test_entries_are_those_of_the_broker(name: str, store: Callable[[str], Path]) -> None:
    """Every ordinary topic of the real file is what we would have made, but for its queues."""
    table = json.loads((store(name) / "config" / "topics.json").read_text())["topicConfigTable"]
    made = 0
    for topic, entry in table.items():
        if entry["perm"] == 6 or topic.startswith("%DLQ%"):
            mine = new_topic(topic, entry["readQueueNums"] - 1, writer_profile(name[:3]))
            made += topic.startswith("%") and mine == entry
            queues = {"readQueueNums": 0, "writeQueueNums": 0, "attributes": {}}
            assert {**mine, **queues} == {**entry, **queues}
            assert list(mine) == list(entry)
    assert made >= 2


def test_a_brokers_file_keeps_what_it_has(store: Callable[[str], Path]) -> None:
    config = store("5.3.3-clean") / "config"
    path = config / "topics.json"
    text = path.read_text().replace('"topicConfigTable"', '"x":{1:2\n\t},\n\t"topicConfigTable"', 1)
    path.write_text(text)
    add(Files(), config, {"orders": 0, "new": 7})
    assert (config / "topics.json.bak").read_text() == text
    changed = path.read_text()
    assert '"x":{1:2\n\t}' in changed
    assert '"counter":12' in changed and '"timestamp":1800000000000' in changed
    assert '"topicName":"new"' in changed and '"readQueueNums":8,' in changed
    before = Topics.read(config)
    add(Files(), config, {"orders": 99, "new": 99})
    assert path.read_text() == changed, "known topics are not touched"
    assert before.queues("new") == 8 and before.queues("none") is None
    assert before.attribute("fifo-topic", "message.type") == "FIFO"
    assert not config.joinpath("topics.json.tmp").exists()


def test_a_broken_file_gives_way_to_its_backup(store: Callable[[str], Path]) -> None:
    config = store("4.9.7-clean") / "config"
    path, backup = config / "topics.json", config / "topics.json.bak"
    kept = backup.read_bytes()
    path.write_bytes(path.read_bytes()[:100])
    add(Files(), config, {"new": 0})
    assert backup.read_bytes() == kept, "the good backup must not be replaced by the broken file"
    assert "new" in Topics.read(config) and "orders" in Topics.read(config)
    for file in (path, backup):
        file.write_text('{"topicConfigTable":3}')
    with pytest.raises(Refused, match=r"topics\.json.*--no-topic-config"):
        Topics.read(config)


def test_no_crash_loses_the_topics(store: Callable[[str], Path]) -> None:
    config = store("5.3.3-clean") / "config"
    counted = CountingFiles()
    add(counted, config, {"first": 0})
    for number in range(len(counted.steps)):
        for files in (FailingFiles(number, errno.ENOSPC), KilledFiles(number)):
            topic = f"T{number}{type(files).__name__}"
            with pytest.raises((StoreError, Killed)):
                add(files, config, {topic: 0})
            assert "orders" in Topics.read(config) and "first" in Topics.read(config)
            add(Files(), config, {topic: 0})
            assert topic in Topics.read(config)
