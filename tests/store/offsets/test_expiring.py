"""Messages that groups lose with files of the log, against the places of the messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.inspect.expiry import Going, LogFile, Why
from mqstore.store.offsets.expiring import losing
from mqstore.store.search.find import find
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import Store

from ... import stores


@pytest.mark.parametrize(
    ("name", "topic"), [("5.3.3-clean", "orders"), ("5.1.4-batchcq", "BatchTopic")]
)
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_messages_before_the_boundary_are_lost(
    name: str, topic: str, share: float, tmp_path: Path
) -> None:
    """Those at offset 5 and later of each queue whose records begin in what goes."""
    root = stores.unpack(name, tmp_path)
    table = ",".join(f"{queue}:5" for queue in range(2))
    text = f'{{"offsetTable":{{"{topic}@late":{{{table}}},"{topic}@done":{{0:9999}}}}}}'
    (root / "config" / "consumerOffset.json").write_text(text)
    with Store(root) as store:
        end = int(store.log_end.position * share)
        file = LogFile("f", 0, end, 0)
        found = losing(store, [Going(file, 0, 77, Why.TIME, 0)])
        lost = [
            one.message
            for one in find(store, Selection(topic=topic))
            if one.message.position < end and one.message.queue_id < 2
        ]
        wanted = sum(message.queue_offset >= 5 for message in lost)
    if name.endswith("clean"):
        assert sum(row.messages for row in found) == wanted
    assert bool(found) == bool(wanted)
    for row in found:
        assert (row.group, row.topic, row.first_ms) == ("late", topic, 77)
        assert 0 < row.messages <= row.unread
        assert share < 1 or row.messages == row.unread
