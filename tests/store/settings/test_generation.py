"""The generation of every real store is guessed right, or is among the candidates."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.settings.generation import generation_of

from ... import stores


def _guess(name: str, root: Path) -> tuple[str, tuple[str, ...]]:
    config = BrokerConfig(stores.config(name, root))
    guess = generation_of(Layout.open(root, config))
    assert guess.reason
    assert guess.version in guess.candidates
    return guess.version, guess.candidates


@pytest.mark.few(24)
@pytest.mark.parametrize("name", stores.NAMES)
def test_the_generation_of_a_real_store(name: str, tmp_path: Path) -> None:
    version, candidates = _guess(name, stores.unpack(name, tmp_path))
    wanted = str(stores.truth(name)["broker_version"])[:3]
    assert wanted == version
    # 4.3 and 4.9 stores of plain messages look alike, so do those of 5.4 and 5.5
    assert len(candidates) == 1 or candidates in (("4.3", "4.9"), ("5.4", "5.5"))


def test_an_empty_store_takes_the_newest(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    guess = generation_of(Layout.open(tmp_path))
    assert guess.version == "5.5"
    assert not guess.certain
