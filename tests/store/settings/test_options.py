"""Options that no file of a store names: what the store shows, and what it does not.

The stores are written with an option, and then looked at without.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT
from mqstore.formats.derive import dtype_of
from mqstore.formats.message_properties import format_properties
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC, format_levels, parse_levels
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.put.new_message import NewMessage, WriterOptions
from mqstore.store.put.writer import StoreWriter
from mqstore.store.recover.recovery import analyze
from mqstore.store.repair.parts import RepairPart, chosen
from mqstore.store.search.store import StoreReader
from mqstore.store.settings.options import options_of
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ..repair.test_repair import repaired

SIZES = BrokerConfig({"mappedFileSizeCommitLog": "262144", "mappedFileSizeConsumeQueue": "400"})
NOW_MS = 1_795_000_000_000
OWN = "3s 7s 2m"
LEVELS = "messageDelayLevel"
MULTI = "enableMultiDispatch"
VERSION = "5.3"
REAL = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
PLAIN = NewMessage(b"orders", b"body", properties=format_properties({"KEYS": "k"}))


def written(root: Path, messages: list[NewMessage], *settings: str, version: str = VERSION) -> Path:
    """A store of a broker with these options; the configuration is not kept."""
    config, options = SIZES.with_set(settings), WriterOptions(as_broker=version)
    with StoreWriter.open(root, config, options, clock=lambda: NOW_MS) as store:
        for message in messages:
            store.append(message)
    return root


def waiting(level: int) -> NewMessage:
    properties = format_properties({"KEYS": "w", "DELAY": str(level), **REAL})
    return NewMessage(SCHEDULE_TOPIC.encode(), b"w", queue_id=level - 1, properties=properties)


def naming(queues: str) -> NewMessage:
    """A message that a producer wants in further queues."""
    return NewMessage(b"orders", b"x", properties=format_properties({"KEYS": "x", "INNER_MULTI_DISPATCH": queues}))


def errors(root: Path, *settings: str, version: str = VERSION) -> list[Finding]:
    with StoreReader(root, BrokerConfig().with_set(settings)) as store:
        found = verify(store, Scope(broker_version=version), now_ms=NOW_MS).findings
    return [finding for finding in found if finding.severity >= Severity.ERROR]


def levels_of(root: Path, *settings: str) -> tuple[str, str]:
    option = options_of(Layout.open(root, BrokerConfig().with_set(settings))).delay_levels
    return option.text, option.origin


@pytest.fixture
def own_levels(tmp_path: Path) -> Path:
    """Levels 1 and 3 have several messages, level 2 one."""
    messages = [waiting(1), waiting(1), waiting(2), PLAIN, waiting(3), waiting(3)]
    return written(tmp_path / "store", messages, f"{LEVELS}={OWN}")


def test_levels_are_those_that_messages_wait(own_levels: Path) -> None:
    usual = format_levels(parse_levels())
    learned = " ".join([OWN, *usual.split()[3:]])
    assert levels_of(own_levels) == (learned, "files")
    assert not errors(own_levels)
    assert levels_of(own_levels, f"{LEVELS}={OWN}") == (OWN, "configuration")
    assert not options_of(Layout.open(own_levels, BrokerConfig({LEVELS: OWN}))).notes()


def test_other_levels_are_given(own_levels: Path) -> None:
    options = options_of(Layout.open(own_levels, BrokerConfig({LEVELS: "1s 7s 2m"})))
    assert options.delay_levels.text == "1s 7s 2m"
    (note,) = options.notes()
    assert note.startswith(f"{LEVELS}=1s 7s 2m in the configuration, but the store shows {OWN} ")


def test_a_queue_that_is_lost_is_made_with_the_levels_of_the_others(own_levels: Path) -> None:
    queue = own_levels / "consumequeue" / SCHEDULE_TOPIC / "0"
    before = {path.name: path.read_bytes() for path in queue.iterdir()}
    given = BrokerConfig({LEVELS: OWN})
    shutil.rmtree(queue)
    repaired(own_levels, given, chosen([RepairPart.QUEUE], ()))
    assert {path.name: path.read_bytes() for path in queue.iterdir()} == before


def test_one_message_alone_proves_no_level_and_is_no_error(tmp_path: Path) -> None:
    root = written(tmp_path / "store", [waiting(1), PLAIN], f"{LEVELS}={OWN}")
    assert levels_of(root)[0] == format_levels(parse_levels())
    with StoreReader(root) as store:
        found = [f for f in verify(store, Scope(), now_ms=NOW_MS).findings if f.code == "I-065"]
    assert [f.severity for f in found] == [Severity.WARNING]
    assert LEVELS in found[0].message
    assert not errors(root, f"{LEVELS}={format_levels(parse_levels())}"), "the option may have changed since"


def test_a_damaged_time_is_an_error_whatever_the_levels(own_levels: Path) -> None:
    (path,) = (own_levels / "consumequeue" / SCHEDULE_TOPIC / "0").iterdir()
    units = np.frombuffer(path.read_bytes(), dtype_of(UNIT)).copy()
    units["tags_code"][0] += 1
    path.write_bytes(units.tobytes())
    assert [finding.code for finding in errors(own_levels)] == ["I-065"]


def test_further_queues_that_messages_name(tmp_path: Path) -> None:
    """Queues of other names than those of LMQs show it, too."""
    messages = [naming("left,right"), PLAIN, naming("right"), naming("left")]
    root = written(tmp_path / "store", messages, f"{MULTI}=true", "enableLmq=true", version="4.9")
    assert (root / "consumequeue" / "left").exists()
    option = options_of(Layout.open(root)).multi_dispatch
    assert (option.value, option.origin) == (True, "files")
    assert analyze(Layout.open(root), "4.9").nothing_to_do
    assert not errors(root, version="4.9")


def test_names_that_a_broker_passed_over(tmp_path: Path) -> None:
    """A property of a producer's, and enableMultiDispatch is off: no queue lacks anything."""
    messages = [naming("left,right"), PLAIN, naming("%LMQ%a")]
    root = written(tmp_path / "store", messages)
    assert not (root / "consumequeue" / "left").exists()
    option = options_of(Layout.open(root)).multi_dispatch
    assert (option.value, option.origin) == (False, "default")
    assert not errors(root)
    assert analyze(Layout.open(root), VERSION).nothing_to_do


def test_what_cannot_be_read_shows_nothing(own_levels: Path) -> None:
    """Nothing is raised: whoever reads the file for its own sake says so."""
    (log,) = (own_levels / "commitlog").iterdir()
    log.write_bytes(b"\xee" * 100)
    assert levels_of(own_levels) == (format_levels(parse_levels()), "default")
    options = options_of(Layout.open(own_levels))
    assert not options.multi_dispatch.value and not options.notes()
