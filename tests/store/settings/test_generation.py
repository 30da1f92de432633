"""The generation of every real store is guessed right, or is among the candidates."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from mqstore.store.broker.profiles import NEWEST, profile_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.byte_reader import Unread, noting, refusing
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import UnreadableRange
from mqstore.store.settings import generation
from mqstore.store.settings.generation import generation_of

from ... import stores

ALIKE = (("4.3", "4.9"), ("5.4", "5.5", NEWEST), ("5.4", NEWEST), ("5.5", NEWEST), ("5.4", "5.5"))


def _guess(name: str, root: Path) -> tuple[str, tuple[str, ...]]:
    config = BrokerConfig(stores.config(name, root))
    guess = generation_of(Layout.open(root, config))
    assert guess.reason
    assert guess.version in guess.candidates
    return guess.version, guess.candidates


@pytest.mark.few(24)
@pytest.mark.parametrize("name", (*stores.NAMES, *stores.FEW_OF_TODAY))
def test_the_generation_of_a_real_store(name: str, tmp_path: Path) -> None:
    version, candidates = _guess(name, stores.unpack(name, tmp_path))
    wanted = profile_of(str(stores.truth(name)["broker_version"])).version
    # consumerOffset.json alone tells 5.5 from 5.5.1, and not every store has it
    assert version in ((wanted, NEWEST) if wanted == "5.5" and len(candidates) > 1 else (wanted,))
    # 4.3 and 4.9 stores of plain messages look alike, so do young ones since 5.4
    assert wanted in candidates
    assert len(candidates) == 1 or candidates in ALIKE


def test_an_empty_store_takes_the_newest(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    guess = generation_of(Layout.open(tmp_path))
    assert guess.version == NEWEST
    assert not guess.certain


def test_it_is_guessed_once_for_a_layout(tmp_path: Path) -> None:
    store = stores.unpack("5.3.3-killed", tmp_path)
    layout = Layout.open(store)
    first = generation_of(layout)
    assert generation_of(layout) is first
    assert generation_of(Layout.open(store)) is not first, "the store may have changed"


def test_a_guess_from_less_than_all_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks is told what cannot be read."""
    layout = Layout.open(stores.unpack("5.3.3-killed", tmp_path))
    lost = Unread("checkpoint", 0, 4096, "Input/output error")
    with monkeypatch.context() as failing:
        failing.setattr(generation, "seen_checkpoint", Mock(side_effect=lost.error()))
        for _ in range(2):
            with noting() as noted:
                generation_of(layout)
            assert list(noted) == [lost]
        with pytest.raises(UnreadableRange), refusing():
            generation_of(layout)
    assert generation_of(layout) is generation_of(layout)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [n for n in stores.FEW if "dledger" not in n and "multipath" not in n])
def test_a_log_alone_is_not_taken_for_older(name: str, tmp_path: Path) -> None:
    """What is missing beside a log that was copied alone says nothing."""
    root = stores.unpack(name, tmp_path)
    wanted = profile_of(str(stores.truth(name)["broker_version"])).version
    for entry in root.iterdir():
        if entry.name != "commitlog":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    assert wanted in generation_of(Layout.open(root)).candidates


@pytest.mark.parametrize(("number", "newest"), [(0, NEWEST), (-1, "5.4")])
def test_keys_twice_show_the_last_broker_only_in_the_last_file(number: int, newest: str, tmp_path: Path) -> None:
    """What 5.3 wrote stays in a store that 5.5.1 goes on with."""
    root = stores.unpack("5.5.1-clean", tmp_path)
    file = sorted((root / "commitlog").iterdir())[number]
    data = file.read_bytes()
    assert b"TRACE_ON" in data
    file.write_bytes(data.replace(b"TRACE_ON", b"UNIQ_KEY", 1))
    assert generation_of(Layout.open(root)).candidates[-1] == newest


def test_queues_of_a_lite_topic_are_of_a_broker_that_knows_those(tmp_path: Path) -> None:
    """No broker before 5.5 makes them."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue" / "%LMQ%room").mkdir(parents=True)
    assert "5.4" in generation_of(Layout.open(tmp_path)).candidates
    (tmp_path / "consumequeue" / "%LMQ%$chat$room").mkdir()
    assert generation_of(Layout.open(tmp_path)).candidates == ("5.5", NEWEST)
