"""Where a store ends, and what is asked before it is written to: who refuses, why, and that nothing was touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import NotAStore, Refused, Unclean, Unreadable, Unsupported

from ...stores import NAMES, config, truth
from .writing import assert_refused, messages, put, writer

UNCLEAN = [
    name
    for name in NAMES
    if truth(name)["exit"] == "killed" and not any(word in name for word in ("rocksdb", "dledger", "restarted"))
]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", UNCLEAN)
def test_killed_stores(name: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    options = BrokerConfig(config(name, root))
    assert_refused(root, Unclean, f"abort is there.*mqstore recover {root}", options)
    (root / "lock").unlink()
    assert_refused(root, Unclean, "abort is there", options)


@pytest.mark.parametrize("name", [n for n in NAMES if n.endswith("clean-no-queues")])
def test_queues_behind_the_log(name: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    options = BrokerConfig(config(name, root))
    assert_refused(root, Unclean, "queues are behind the log.*mqstore recover", options)


def test_damage_in_the_last_file(store: Callable[[str], Path]) -> None:
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root))
    [*_, last] = sorted((root / "commitlog").iterdir())
    good = last.read_bytes()
    for spoiled, said in (
        (good[:100] + bytes([good[100] ^ 1]) + good[101:], "checksum"),
        (bytes(8) + good[8:], "begins with zeros"),
        (good[:3000] + bytes(3000) + good[6000:], "damage|checksum|torn"),
    ):
        last.write_bytes(spoiled)
        assert_refused(root, Unclean, said, options)
    last.write_bytes(good)
    writer(root, config=options).close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("5.3.3-dledger", "DLedger.*--convert plain --to DIR"),
    ],
)
def test_kinds_that_are_not_appended_to(name: str, said: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    assert_refused(root, Unsupported, said, BrokerConfig(config(name, root)))


def test_no_database_yet(store: Callable[[str], Path]) -> None:
    root = store("5.3.3-clean")
    options = BrokerConfig(config("5.3.3-clean", root) | {"storeType": "defaultRocksDB"})
    assert_refused(root, Unsupported, "there is none yet.*--as rocksdb", options)


def test_places_that_are_no_stores(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert_refused(tmp_path / "file", NotAStore, "not a directory")
    assert_refused(tmp_path / "other", NotAStore, "not a message store")
    with pytest.raises(Unreadable):
        writer(tmp_path / "loop" / "store")


def test_an_empty_log_beside_full_queues(tmp_path: Path) -> None:
    put(tmp_path, messages(9))
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    assert_refused(tmp_path, Refused, "no record, but the queues have units")


def test_files_of_different_sizes(tmp_path: Path) -> None:
    put(tmp_path, messages(60))
    [first, *_] = sorted((tmp_path / "commitlog").iterdir())
    first.write_bytes(first.read_bytes()[:1000])
    assert_refused(tmp_path, Refused, "1000 bytes at 0, others have 4096")


def test_a_zero_byte_last_file(tmp_path: Path) -> None:
    put(tmp_path, messages(60))
    (tmp_path / "commitlog" / f"{1 << 30:020d}").touch()
    assert_refused(tmp_path, Refused, "a commit log file of 0 bytes")
