"""What real consumers received for their expressions, from real brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqstore.store.broker.filter import Where
from mqstore.store.search.find import find
from mqstore.store.search.log_search import search_log
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import StoreReader

from ...stores import truth, unpack
from ..choices import stores_where


def _selection(subscription: dict[str, Any], topic: str | None) -> Selection:
    if subscription["type"] == "TAG":
        return Selection(topic=topic, tag=subscription["expression"])
    assert subscription["type"] == "SQL92"
    return Selection(topic=topic, where=Where(subscription["expression"]))


@pytest.mark.parametrize("name", stores_where(lambda truth: truth.get("filters")))
def test_consumers_got_what_is_selected(name: str, tmp_path: Path) -> None:
    with StoreReader(unpack(name, tmp_path)) as store:
        for what, subscription in truth(name)["filters"].items():
            received = sorted(subscription["selected"])
            queues = find(store, _selection(subscription, "sql"))
            assert sorted(str(f.message.unique_key) for f in queues) == received, what
            # one by one, and by a pattern of topics through the log
            wanted = _selection(subscription, None)
            every = [f.message for f in find(store, Selection(topic="sql"))]
            assert sorted(str(m.unique_key) for m in every if wanted.takes(m)) == received, what
            scan = search_log(store, _selection(subscription, "sq*"), note=lambda _: None)
            assert sorted(str(f.message.unique_key) for f in scan) == received, what
