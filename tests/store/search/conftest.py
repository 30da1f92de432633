"""The store that most searches are in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqstore.store.search.store import StoreReader

from ...stores import messages
from .searched import NAME, Record


@pytest.fixture(scope="package")
def known() -> list[Record]:
    return list(messages(NAME))


@pytest.fixture
def opened(store: Callable[[str], Path]) -> Iterator[StoreReader]:
    with StoreReader(store(NAME)) as found:
        yield found
