"""Stores that some tests of `verify` share."""

from __future__ import annotations

from pathlib import Path

import pytest

from .. import stores


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some stores, not to be changed."""
    root = tmp_path_factory.mktemp("verify")
    for name in ("5.3.3-clean", "5.3.3-killed", "5.3.3-killed-page", "4.9.7-dledger"):
        stores.unpack(name, root)
    return root
