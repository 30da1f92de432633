"""Lost records by their place, and what stands for them."""

from __future__ import annotations

import numpy as np

from mqstore.formats.message import MAGIC_V1
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.plan.gaps import Forms
from mqstore.store.plan.lost_messages import LostUnits

MADE_MS = 1_795_300_000_000


def lost(*rows: tuple[int, int, str]) -> LostUnits:
    """Lost records (position, size, topic), each in a queue of its own at offset 7."""
    numbers = np.arange(len(rows), dtype=np.int64)
    return LostUnits(
        [QueueId(topic, 0) for _, _, topic in rows],
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
        numbers,
        np.full(len(rows), 7, np.int64),
        np.zeros(len(rows), np.int64),
    )


FORMS = Forms(MADE_MS, ("5.3",))
HOST = {"ip": b"\x7f\0\0\1", "port": 0}
ZEROS = ("body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag")
MORE_ZEROS = ("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset")
BARE_RECORD = {
    **dict.fromkeys((*ZEROS, *MORE_ZEROS), 0),
    **dict.fromkeys(("born_host", "store_host"), HOST),
    "magic_code": MAGIC_V1,
    "body": b"",
    "topic": b"t",
}
