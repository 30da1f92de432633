"""Records of a real broker."""

from __future__ import annotations

import pytest

from tests.stores import unpack

from .images import records_of

STORE = "5.3.3-clean"


@pytest.fixture(scope="package")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, bytes]]:
    """Records of a real broker with their positions."""
    return records_of(STORE, unpack(STORE, tmp_path_factory.mktemp("store")))
