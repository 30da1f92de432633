"""RocksDBs in which brokers keep timers, transactions, what POP consumers have: whether they are whole."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from mqstore.formats import rocksdb_store
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import NoSpace
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.next_commands import ALL
from mqstore.store.inspect.timers import timers
from mqstore.store.queues.rocksdb import RocksDb
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import layout
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Verdict

from ... import stores
from ...cli.datadriven import run_here
from ...database_mishaps import put
from ...verdict import said_of

OPTION = "transRocksDBEnable=true"


def verified(root: Path, *options: str) -> Verdict:
    with StoreReader(root, BrokerConfig().with_set(options)) as store:
        return verify(store, Scope(groups=frozenset({"layout"})))


def severities(root: Path, *options: str) -> list[Severity]:
    return [f.severity for f in verified(root, *options).findings if f.code == "I-014"]


def test_a_rocksdb_that_the_broker_conf_does_not_ask_for(tmp_path: Path) -> None:
    """Whatever is there: a broker without storeType makes its queues in files."""
    name = "5.5.1-rocksdb"
    root, conf = stores.unpack(name, tmp_path), tmp_path / "broker.conf"
    options = stores.config(name, root)
    conf.write_text("\n".join(f"{key}={text}" for key, text in options.items()))
    assert not said_of(root, BrokerConfig.from_file(conf)).codes
    del options["storeType"]
    conf.write_text("\n".join(f"{key}={text}" for key, text in options.items()))
    for settings in ([], ["rocksdbCQDoubleWriteEnable=false"]):
        said = said_of(root, BrokerConfig.from_file(conf).with_set(settings))
        assert said.of_start == ["I-188"] and {"I-010", "I-070"} <= set(said.codes)
    assert not said_of(root, BrokerConfig(options)).codes, "options alone leave the others to what is there"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """One with open transactions in rocksdbstore."""
    return stores.unpack("5.5.1-rocks-trans-open", tmp_path)


def test_a_table_that_is_missing(store: Path) -> None:
    """A broker starts without what was in it: damage where its options keep something there."""
    assert severities(store, OPTION) == []
    for table in (store / "rocksdbstore").glob("*.sst"):
        table.unlink()
    assert severities(store) == [Severity.WARNING]
    assert severities(store, OPTION) == [Severity.ERROR]
    looked_at = run_here(["inspect", str(store), "--set", OPTION])
    assert looked_at.stdout.startswith("Damaged: rocksdbstore: its table 000013.sst is missing")


def test_a_table_with_a_wrong_byte(store: Path) -> None:
    (table,) = (store / "rocksdbstore").glob("*.sst")
    data = bytearray(table.read_bytes())
    data[20] ^= 1
    table.write_bytes(data)
    assert severities(store, OPTION) == [Severity.ERROR]


def test_kv_store(store: Path) -> None:
    (store / "rocksdbstore").rename(store / "kvStore")
    assert severities(store) == []
    (store / "kvStore" / "CURRENT").unlink()
    assert severities(store) == [Severity.WARNING]


def test_without_the_extra_nobody_has_looked(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But in a database into which a broker never put anything nothing is left out."""
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    assert any("rocksdbstore" in text for text in verified(store).unread)
    unused = stores.unpack("5.5.0-clean", store.parent)
    assert not any("rocksdbstore" in text for text in verified(unused).unread)
    assert any("rocksdbstore" in text for text in verified(unused, OPTION).unread)


def test_beside_a_writing_broker_nobody_can_tell(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files come and go while they are read: none of it is damage."""
    for table in (store / "rocksdbstore").glob("*.sst"):
        table.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(VerifyContext, "live", property(lambda _: True))
        found = verified(store, OPTION)
    assert not [f for f in found.findings if f.code == "I-014"]
    assert any("rocksdbstore: a broker is writing there" in text for text in found.unread)


def test_a_full_disk_for_temporary_files_is_no_damage(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> str:
        raise NoSpace("full")

    monkeypatch.setattr(layout, "read_whole", full)
    found = verified(store, OPTION)
    assert not [f for f in found.findings if f.code == "I-014"]
    assert any("rocksdbstore: full" in text for text in found.unread)


def test_what_its_files_prove_to_be_lost(store: Path) -> None:
    """Damage where the broker's options keep something there; a way back where the MANIFEST of the tables is there."""
    database = store / "rocksdbstore"
    (database / "CURRENT").unlink()
    assert severities(store) == [Severity.WARNING]
    (found,) = [f for f in verified(store, OPTION).serious if f.code == "I-014"]
    assert found.message.startswith("it has no CURRENT; MANIFEST-000005 beside it names all its tables")
    assert found.repair == ALL
    (manifest,) = database.glob("MANIFEST-*")
    os.truncate(manifest, manifest.stat().st_size // 2)
    (database / "CURRENT").write_text(f"{manifest.name}\n")
    (found,) = verified(store, OPTION).serious
    assert found.message.startswith("MANIFEST-000005 is older than the tables beside it") and found.repair == ""


def test_a_directory_that_is_gone(store: Path) -> None:
    """A broker makes a new one, and asks for the decision of no half message."""
    shutil.rmtree(store / "rocksdbstore")
    assert severities(store) == severities(store, "timerRocksDBEnable=true") == []
    (found,) = verified(store, OPTION).serious
    assert found.message.startswith(
        "it is missing, and it held transactions: a start makes a new one, checks no earlier half"
    )


def test_a_rocksdb_of_a_log_with_other_positions(store: Path) -> None:
    """As one that was copied to a converted store: a real 5.5.1 asks for none of its transactions, and says nothing."""
    pytest.importorskip("rocksdict")
    with RocksDb.open(store / "rocksdbstore") as database:
        rows = {key: value for key, value in database.items(rocksdb_store.TRANSACTION) if key[:1] == b"\0"}
    changes: dict[bytes, bytes | None] = dict.fromkeys(list(rows)[1:])
    for key in list(changes):
        row = rocksdb_store.TRANSACTION_KEY.parse(key)
        moved = {**row, "physical_offset": row.physical_offset + 48}
        changes[rocksdb_store.TRANSACTION_KEY.build(moved)] = rows[key]
    lost = {"physical_offset": 100, "name": b"@orders@gone"}
    put(store / "rocksdbstore", {rocksdb_store.TRANSACTION: {rocksdb_store.TRANSACTION_KEY.build(lost): bytes(8)}})
    assert severities(store, OPTION) == [], "a half message that is lost is told where it was"
    put(store / "rocksdbstore", {rocksdb_store.TRANSACTION: changes})
    assert severities(store) == [Severity.WARNING]
    (found,) = verified(store, OPTION).serious
    assert found.message.startswith(f"the positions of {len(rows) - 1} open transactions are not those of their half ")


def test_timers_are_in_the_log_as_well(tmp_path: Path) -> None:
    """A real 5.4.0 delivers what waits, and once more what was delivered, be it the directory that is gone, or a table,
    CURRENT, or a byte in a table.
    """
    root, option = stores.unpack("5.5.0-timer-clean", tmp_path), "timerRocksDBEnable=true"
    shutil.rmtree(root / "rocksdbstore")
    assert severities(root, option) == [Severity.WARNING]
    (found,) = [f for f in verified(root, option).findings if f.code == "I-014"]
    assert found.message.startswith(
        "it is missing, and it held timers: a start makes a new one, delivers timers that wait"
    )
    told: list[str] = []
    with StoreReader(root, BrokerConfig().with_set([option])) as store:
        timers(store, 0, told.append)
    assert any("rocksdbstore is missing" in text for text in told)
    assert run_here(["recover", str(root), "--set", option]).stdout.startswith("Safe to start")


def test_kv_store_that_is_gone(tmp_path: Path) -> None:
    """A real 5.5.1 makes it anew, and gives no consumer again what it had by POP and had not acknowledged. It has no
    check points in topics of its own: with those, or without POP, there may have been none yet.
    """
    option, config = "popConsumerKVServiceInit=true", tmp_path / "5.5.0-clean" / "config"
    root = stores.unpack("5.5.0-clean", tmp_path)
    assert severities(root) == []
    assert severities(root, option) == [Severity.WARNING]
    mode = {"topic": "orders", "consumerGroup": "group-a_tags", "mode": "POP", "popShareQueueNum": 0}
    modes = {"messageRequestModeMap": {"orders": {"group-a_tags": mode}}}
    (config / "messageRequestMode.json").write_text(json.dumps(modes))
    (found,) = [one for one in verified(root, option).serious if one.code == "I-014"]
    assert found.message == "it is missing, and it held messages that POP consumers have" and found.repair == ""
    for path in config.glob("consumerOffset.json*"):
        path.unlink()
    assert severities(root, option) == []
    assert severities(stores.unpack("5.5.0-pop", tmp_path), option) == [Severity.WARNING]
    assert severities(stores.unpack("5.1.4-clean", tmp_path), option) == [], "no broker of 5.1 has the option"


def test_kv_store_that_has_lost_its_log_or_the_end_of_it(tmp_path: Path) -> None:
    """All that POP consumers had was in the write-ahead log: a real 5.5.1 gives it to nobody again."""
    option = "popConsumerKVServiceInit=true"
    root = stores.unpack("5.5.0-clean", tmp_path)
    mode = {"topic": "orders", "consumerGroup": "group-a_tags", "mode": "POP", "popShareQueueNum": 0}
    modes = {"messageRequestModeMap": {"orders": {"group-a_tags": mode}}}
    (root / "config" / "messageRequestMode.json").write_text(json.dumps(modes))
    (stores.unpack("5.5.0-rocksdb-killed", tmp_path / "other") / "config/consumerOffsets").rename(root / "kvStore")
    assert severities(root, option) == []
    (log,) = (root / "kvStore").glob("*.log")
    os.truncate(log, log.stat().st_size - 1)
    assert severities(root, option) == [Severity.WARNING]
    log.write_bytes(bytes(log.stat().st_size))
    assert severities(root, option) == [Severity.ERROR], "no broker makes such a one"
    os.truncate(log, 0)
    assert severities(root, option) == [Severity.WARNING]
    (root / "abort").touch()
    assert severities(root, option) == [Severity.ERROR]
    log.write_bytes(bytes(99))
    assert severities(root, option) == [Severity.ERROR]
    (root / "config" / "messageRequestMode.json").write_text("{}")
    assert severities(root, option) == [Severity.WARNING], "who consumed by POP is not known"
    (root / "config" / "messageRequestMode.json").write_text(json.dumps(modes))
    log.unlink()
    assert severities(root) == [Severity.WARNING]
    assert severities(root, option) == [Severity.ERROR]


def test_kv_store_without_current(store: Path) -> None:
    """A real 5.5.1 broker with popConsumerKVServiceInit does not start: RocksDB makes no new one beside a log."""
    (store / "rocksdbstore").rename(store / "kvStore")
    (store / "kvStore/CURRENT").unlink()
    assert severities(store) == severities(store, "popConsumerKVServiceEnable=true") == [Severity.WARNING]
    assert severities(store, "popConsumerKVServiceInit=true") == [Severity.FATAL]
