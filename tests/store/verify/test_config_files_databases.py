"""RocksDBs of the configuration as real brokers leave them: one without a column family is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.catalogue import Severity
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import stores
from ...cli.datadriven import run_here


@pytest.mark.parametrize("version", ["5.3", "5.5"])
def test_a_family_that_is_missing_is_made(version: str, tmp_path: Path) -> None:
    """Real 5.3.3 and 5.5.0 load it and make the family; a new one of 5.5.0 has none but the default."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    for name in ("topics", "subscriptionGroups", "consumerOffsets"):
        Rdict(str(root / "config" / name), Options(raw_mode=True)).close()
    with StoreReader(root) as store:
        found = verify(store, Scope(groups=frozenset({"config"}), broker_version=version)).findings
    about = [f for f in found if f.code == "I-155" and "column family" in f.message]
    assert about and {finding.severity for finding in about} == {Severity.INFO}


def test_two_forms_beside_queues_in_files(tmp_path: Path) -> None:
    """Which one a broker reads only its options say: a warning; where they do, or where the queues are in a
    RocksDB as well, none.
    """
    files, databases = (stores.unpack(name, tmp_path) for name in ("5.5.0-clean", "5.3.3-rocksdb"))
    for name in ("topics", "subscriptionGroups", "consumerOffsets"):
        shutil.copytree(databases / "config" / name, files / "config" / name)
    shutil.copy(files / "config" / "topics.json", databases / "config")

    def said(root: Path, *options: str) -> list[str]:
        with StoreReader(root, BrokerConfig().with_set(options)) as store:
            found = verify(store, Scope(groups=frozenset({"config"}))).findings
        return [f"{f.severity.label}: {f.message}" for f in found if f.code == "I-155"]

    (text,) = said(files)
    assert text.startswith("warning: consumerOffsets, subscriptionGroups, topics beside files of JSON")
    assert said(files, "storeType=default") == said(databases) == []


def test_a_log_of_topics_with_a_wrong_byte(tmp_path: Path) -> None:
    """A broker takes what lies before it without a word: the start forgets, and that is an error."""
    root = stores.unpack("5.5.0-rocksdb-killed", tmp_path)
    log = root / "config/topics/000010.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 3] ^= 4
    log.write_bytes(data)
    config = BrokerConfig(stores.config("5.5.0-rocksdb-killed", root))
    with StoreReader(root, config) as store:
        found = {f.code: f for f in verify(store, Scope(groups=frozenset({"config", "start"}))).serious}
    assert set(found) == {"I-155", "I-188"}
    assert found["I-155"].message == "its write-ahead log 000010.log is damaged at 175, and is not read from there on"
    assert found["I-155"].severity is Severity.ERROR and "entries of config/topics are lost" in found["I-188"].message


@pytest.mark.parametrize("made", [False, True])
def test_a_file_in_the_place_of_a_database_that_is_gone(made: bool, tmp_path: Path) -> None:
    """A start takes it over. What a recovery made has all that there is; any other may be older than what was lost."""
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    config = BrokerConfig(stores.config("5.3.3-rocksdb", root))
    shutil.rmtree(root / "config" / "topics")
    if made:
        done = run_here(["recover", str(root), "--broker-version", "5.3", "--apply", "--yes", *config.words])
        assert "A broker can be started." in done.stdout, done
    else:
        table = {"topicConfigTable": {"orders": {"topicName": "orders"}}, "dataVersion": {"counter": 7}}
        (root / "config" / "topics.json").write_text(json.dumps(table))
    with StoreReader(root, config) as store:
        found = verify(store, Scope(groups=frozenset({"config"}), broker_version="5.3")).findings
    (one,) = (finding for finding in found if finding.code == "I-155")
    assert "imports config/topics.json" in one.message
    assert (one.severity, "may be older" in one.message) == ((Severity.INFO, False) if made else (Severity.FATAL, True))
