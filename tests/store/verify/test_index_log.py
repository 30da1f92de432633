"""The index against the log, in lock step: what a broker leaves, what is damage, and how little is said of it."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.hashing import index_hash
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.index.write import IndexWriter
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import log_pass
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ...cli.datadriven import run_here
from ...stores import config, config_set
from .mutations import NOW_MS, copied, original
from .mutations.index import files

CLEAN = "5.3.3-clean"


TAGGED = "5.5.0-clean"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("index")


def _findings(name: str, root: Path, jobs: int = 1, **scope: object) -> list[Finding]:
    """What group D says of a store."""
    with StoreReader(root, BrokerConfig(config(name, root))) as store:
        asked = Scope(groups=frozenset({"index"}), **scope)  # type: ignore[arg-type]
        return verify(store, asked, now_ms=NOW_MS, jobs=jobs).findings


def _told(findings: list[Finding]) -> set[tuple[str, Severity]]:
    return {(finding.code, finding.severity) for finding in findings}


def test_a_record_indexed_twice_after_a_crash_is_as_brokers_do(work: Path) -> None:
    findings = _findings("4.9.7-killed-restarted", original("4.9.7-killed-restarted", work))
    assert _told(findings) == {("I-102", Severity.WARNING)}


def test_an_empty_file_that_made_a_broker_begin_anew_is_told_by_its_duplicates(work: Path) -> None:
    findings = _findings("4.3.1-killed-restarted", original("4.3.1-killed-restarted", work))
    assert _told(findings) == {("I-102", Severity.WARNING), ("I-104", Severity.WARNING)}
    assert sum(f.count for f in findings if f.code == "I-102") == 1197


def test_an_index_ahead_of_a_cut_log_is_damage(work: Path) -> None:
    name = "4.9.7-killed-bit-restarted"
    errors = {code for code, level in _told(_findings(name, original(name, work))) if level > 1}
    assert errors == {"I-100", "I-101", "I-105"}


@pytest.mark.parametrize(("name", "version"), [(CLEAN, "5.5.0"), (TAGGED, "5.3.3")])
def test_a_wrong_guess_of_the_version_makes_no_finding(name: str, version: str, work: Path) -> None:
    assert _findings(name, original(name, work), broker_version=version) == []


def test_an_index_with_tags_has_those_of_all_later_records(work: Path) -> None:
    root = copied(original(TAGGED, work), work)
    file = files(root)[-1]
    hashes = Counter(item.key_hash for item in file.items[1:])
    tag = next(n for n in range(20, len(file.items)) if hashes[file.items[n].key_hash] > 3)
    file.set_item(tag, "key_hash", file.items[tag].key_hash ^ 1)
    findings = _findings(TAGGED, root)
    assert {"I-100", "I-101"} <= {finding.code for finding in findings}


@pytest.mark.parametrize("jobs", [1, 2])
def test_tags_are_asked_for_from_the_first_that_is_indexed(
    work: Path, jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that indexes tags goes on with the index of one that did not."""
    monkeypatch.setattr(log_pass, "CUT_BYTES", 1 << 15)
    root = copied(original(CLEAN, work), work)
    with StoreReader(root, BrokerConfig(config(CLEAN, root))) as store:
        last = store.log.records(np.array([409_341]))
        assert last.columns.ragged("topic").tolist() == [b"later"]
        time = int(last.columns.ints("store_timestamp")[0])
        writer = IndexWriter.of(Files(), store.layout, count_every_put=False)
        writer.append_record([(index_hash("later", "T#TagB"), 409_341, time)])
        writer.sync()
        writer.close()
    assert _findings(CLEAN, root, jobs, broker_version="5.5.0") == []


@pytest.mark.parametrize("then", [(), ("5.5.0",)])
def test_an_older_broker_leaves_tags_out_beside_its_keys(work: Path, then: tuple[str, ...]) -> None:
    """A store that went back to 5.3, and to 5.5 again: no key is lost."""
    root = copied(original(TAGGED, work), work)
    for number, version in enumerate(("5.3.3", "5.3.3", *then)):
        words = ["put", str(root), "back", "body", "--tag", "T", "--keys", f"k{number}", "--as-broker", version]
        done = run_here([*words, *chain.from_iterable(("--set", each) for each in config_set(TAGGED, root))])
        assert done.code == 0, done.stderr
    findings = [f for f in _findings(TAGGED, root, broker_version="5.5.0") if f.code == "I-101"]
    assert [(f.severity, f.count) for f in findings] == [(Severity.INFO, 2)]


def test_one_tag_that_is_lost_between_others_is_damage(work: Path) -> None:
    """No broker leaves out the tag of one message alone."""
    root = copied(original(TAGGED, work), work)
    file = files(root)[-1]
    hashes = Counter(item.key_hash for item in file.items[1:])
    tag = next(n for n in range(20, len(file.items)) if hashes[file.items[n].key_hash] > 3)
    file.set_item(tag, "key_hash", file.items[tag - 1].key_hash)
    file.set_item(tag, "physical_offset", file.items[tag - 1].physical_offset)
    assert ("I-101", Severity.ERROR) in _told(_findings(TAGGED, root))


def test_an_index_that_is_gone_is_told_once(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    shutil.rmtree(root / "index")
    (told,) = _findings(CLEAN, root)
    assert (told.code, told.severity, told.path) == ("I-101", Severity.ERROR, str(root / "index"))
    assert told.message.startswith("the index is missing: 376 messages have keys")
    (of_topic,) = _findings(CLEAN, root, topic="orders")
    assert of_topic.message.startswith("the index is missing: 87 messages have keys")


@pytest.mark.parametrize("option", ["messageIndexEnable", "indexFileWriteEnable"])
def test_a_broker_without_an_index_has_lost_no_key(option: str, work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    shutil.rmtree(root / "index")
    options = {**config(CLEAN, root), option: "false"}
    with StoreReader(root, BrokerConfig(options)) as store:
        found = verify(store, Scope(groups=frozenset({"index"})), now_ms=NOW_MS).findings
    assert not found


def test_a_header_may_name_the_last_position_there_is(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    files(root)[-1].set_header("end_physical_offset", int(np.iinfo(np.int64).max))
    assert "I-105" in {finding.code for finding in _findings(CLEAN, root)}


def test_items_of_no_record_are_told_without_the_queues(work: Path) -> None:
    """What the pass over the log has looked at is known whatever it is asked for."""
    name = "5.3.3-killed-page"
    root = original(name, work)
    with StoreReader(root, BrokerConfig(config(name, root))) as store:
        whole = verify(store, now_ms=NOW_MS).findings
    alone = [finding for finding in _findings(name, root) if finding.code == "I-100"]
    assert alone == [finding for finding in whole if finding.code == "I-100"]
    assert sum(finding.count for finding in alone) == 38
