"""Whole real brokers on configuration that cannot be read: which files keep them from starting."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.broker.profiles import profile_of
from mqstore.store.disk.layout import Layout
from mqstore.store.start.config import config_start
from mqstore.store.start.config_load import RULES, TRANSACTIONS

from .brokers import Broker, missing

pytestmark = [pytest.mark.interop, pytest.mark.slow]

VERSIONS = ("4.9.7", "5.3.3", "5.5.0", "5.5.1")


def starts(version: str, store: Path) -> bool:
    try:
        with Broker(version, store) as broker:
            broker.stop()
    except RuntimeError as error:
        assert "does not load the store" in str(error)
        return False
    return True


@pytest.mark.parametrize("name", RULES["5.5"].known)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_and_its_bak_of_garbage(version: str, name: str, tmp_path: Path) -> None:
    if why := missing(version):
        pytest.skip(why)
    (tmp_path / "config").mkdir()
    (tmp_path / "timerwheel").touch()
    for path in (tmp_path / "config" / name, tmp_path / "config" / f"{name}.bak"):
        path.write_bytes(b"no configuration")
    refuses = config_start(Layout.of(tmp_path), profile_of(version), {}).refuses
    (tmp_path / "timerwheel").unlink()
    assert starts(version, tmp_path) is not bool(refuses)
    assert not bool(refuses) or name != TRANSACTIONS
