"""Message ids of whole columns of messages, by the rules of `message_id`; its schemas are encoded in bulk."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .derive import Ragged, encode
from .derive.ragged import Ints
from .message_id import MESSAGE_ID_V4, MESSAGE_ID_V6
from .primitives import IPV4_BYTES, IPV6_BYTES

Numbers = npt.NDArray[np.signedinteger[Any]]
_HEX = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.dtype("S2"))


def message_id_column(ip: Ragged, port: Numbers, physical_offset: Ints) -> Ragged:
    """The offset message id of each message. Addresses have 4 or 16 bytes."""
    parts, order = list[Ragged](), [np.zeros(0, np.int64)]
    for length, schema in ((IPV4_BYTES, MESSAGE_ID_V4), (IPV6_BYTES, MESSAGE_ID_V6)):
        rows = np.flatnonzero(ip.length == length)
        if len(rows):
            made = encode(schema, {"ip": ip[rows], "port": port[rows], "physical_offset": physical_offset[rows]})
            digits = 2 * schema.sizeof()
            text = np.ascontiguousarray(_HEX[made.buffer]).view(np.uint8)
            parts.append(Ragged(text, np.arange(len(rows)) * digits, np.full(len(rows), digits)))
            order.append(rows)
    return parts[0] if len(parts) == 1 else Ragged.concat(parts)[np.argsort(np.concatenate(order))]
