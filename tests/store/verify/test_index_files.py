"""The index against the log: what a broker leaves, what is damage, and how little is said of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.findings.next_commands import command_for
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.index_files import links_of
from mqstore.store.verify.run import verify

from ...packing import pack
from ...slices import examples
from ...stores import config
from .mutations import NOW_MS, copied, original
from .mutations.index import files

CLEAN = "5.3.3-clean"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("index")


def _findings(name: str, root: Path, **scope: object) -> list[Finding]:
    """What group D says of a store."""
    with StoreReader(root, BrokerConfig(config(name, root))) as store:
        asked = Scope(groups=frozenset({"index"}), **scope)  # type: ignore[arg-type]
        return verify(store, asked, now_ms=NOW_MS).findings


def _told(findings: list[Finding]) -> set[tuple[str, Severity]]:
    return {(finding.code, finding.severity) for finding in findings}


def test_reading_at_a_rate_finds_the_same(work: Path) -> None:
    name = "4.9.7-killed-bit-restarted"
    root = original(name, work)
    with StoreReader(root, BrokerConfig(config(name, root)), rate_bytes=1 << 34) as store:
        groups = frozenset({"consume_queue", "index"})
        slow = verify(store, Scope(groups=groups), now_ms=NOW_MS).findings
    assert [f for f in slow if f.code > "I-09"] == _findings(name, root)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("maxHashSlotNum=1000", {Severity.ERROR: 3}),
        ("maxIndexNum=100", {Severity.ERROR: 2, Severity.WARNING: 1}),
        ("maxIndexNum=1000", {Severity.WARNING: 3}),
        ("maxHashSlotNum=97", {}),
        ("maxIndexNum=400", {}),
        ("brokerName=a", {}),
    ],
)
def test_options_that_are_not_those_of_the_files(option: str, told: dict[Severity, int], work: Path) -> None:
    """97 slots and 400 items, of which the newest file has few. What is not named the files tell."""
    with StoreReader(original(CLEAN, work), BrokerConfig().with_set([option])) as store:
        found = verify(store, Scope(groups=frozenset({"index"})), now_ms=NOW_MS).findings
    assert Counter(finding.severity for finding in found if finding.code == "I-090") == told


def test_an_index_file_that_is_gone_from_the_middle_is_told(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    sorted((root / "index").iterdir())[1].unlink()
    told = {finding.message for finding in _findings(CLEAN, root) if finding.code == "I-101"}
    assert any("the index file that had its keys is missing" in text for text in told)


def test_a_position_far_away_is_one_item_not_the_rest_of_the_file(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    files(root)[0].set_item(40, "physical_offset", 1 << 50)
    counts = Counter({f.code: f.count for f in _findings(CLEAN, root)})
    assert counts == {"I-098": 2, "I-100": 1, "I-101": 1}


def test_a_loop_is_fatal_and_an_item_that_links_to_itself_is_not(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    file = files(root)[0]
    newer = next(n for n in range(len(file.items) - 1, 0, -1) if file.items[n].previous)
    older = file.items[newer].previous
    file.set_item(older, "previous", newer)
    assert ("I-096", Severity.FATAL) in _told(_findings(CLEAN, root))
    file.set_item(older, "previous", older)
    levels = {level for code, level in _told(_findings(CLEAN, root)) if code == "I-096"}
    assert levels == {Severity.ERROR}


def test_a_whole_file_of_noise_is_told_in_few_words(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    path = files(root)[0].path
    data = bytearray(path.read_bytes())
    data[200:] = np.random.default_rng(3).bytes(len(data) - 200)
    path.write_bytes(data)
    found = _findings(CLEAN, root)
    assert {"I-094", "I-095", "I-096", "I-098", "I-100"} <= {f.code for f in found}
    assert all(f.path for f in found)


def test_a_new_file_without_items_is_no_damage(work: Path) -> None:
    """What a writer has just made is not held against the file before it."""
    root = copied(original(CLEAN, work), work)
    newest = max((root / "index").iterdir())
    newest.with_name(str(int(newest.name) + 1)).write_bytes(bytes(newest.stat().st_size))
    found = [one for one in _findings(CLEAN, root) if one.code != "I-103"]
    assert [(one.code, one.severity) for one in found] == [("I-092", Severity.INFO)]


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.lists(st.integers(0, 11), max_size=20), max_size=5), st.integers(1, 12))
def test_the_item_before_each_one_in_its_slot(windows: list[list[int]], slots: int) -> None:
    """As a broker links them, one by one, however many of a window share a slot."""
    known, newest, number = np.zeros(12, np.int32), [0] * 12, 0
    for window in windows:
        some = np.array(window, np.int64) % slots
        numbers = np.arange(number + 1, number + 1 + len(window))
        found = links_of(known, numbers, some).tolist()
        for slot, before in zip(some.tolist(), found, strict=True):
            number += 1
            assert before == newest[slot]
            newest[slot] = number
        assert known.tolist() == newest


@pytest.mark.parametrize(("how", "command"), [("gzip", "gunzip"), ("zstd", "zstd --decompress --rm")])
def test_a_compressed_file_is_to_be_unpacked(how: str, command: str, work: Path) -> None:
    """A broker passes it over, and no plan is made beside it."""
    root = copied(original(CLEAN, work), work)
    packed = pack(min((root / "index").iterdir()), how)
    (found,) = (f for f in _findings(CLEAN, root) if f.code == "I-091")
    assert found.severity is Severity.ERROR
    assert str(command_for(found, root)) == f"{command} {packed}"


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        ("old2", "5.3.3", "its name is not a time, a broker skips it"),
        ("12345678901234567890", "5.3.3", "its name is not a time, a broker skips it"),
        ("12345678901234567", "5.3.3", "a directory, not a file: a broker does not start"),
        ("12345678901234567", "4.9.7", "a directory, not a file: a broker reads no index file whose name comes behind"),
    ],
)
def test_a_directory_is_opened_if_its_name_is_a_number(name: str, version: str, told: str, work: Path) -> None:
    """Numbers are those of 64 bits. What brokers do was asked of the classes of 4.3.1, 4.9.7, 5.1.4 and 5.3.3."""
    root = copied(original(CLEAN, work), work)
    (root / "index" / name).mkdir()
    (found,) = (f for f in _findings(CLEAN, root, broker_version=version) if f.code == "I-091")
    assert found.message.endswith(told)
    assert found.severity is (Severity.ERROR if "not start" in told else Severity.WARNING)
    by_hand = f"mv {root}/index/{name} {root}-aside-index-{name}"
    assert str(command_for(found, root)) == (by_hand if "skips" in told else f"mqstore recover {root} --apply")
