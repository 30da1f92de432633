"""The store that most searches are in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mqstore.store.search.store import Store

from ...stores import messages
from .searched import NAME, Record


@pytest.fixture(scope="package")
def known() -> list[Record]:
    return list(messages(NAME))


@pytest.fixture
def opened(store: Callable[[str], Path]) -> Iterator[Store]:
    with Store(store(NAME)) as found:
        yield found
