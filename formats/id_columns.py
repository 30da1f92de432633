"""Message ids and hosts of whole columns of messages, by the rules of `message_id` and `host`.

Both functions encode the bytes of their schema in bulk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .derive import Ragged, encode
from .derive.ragged import Ints
from .host import host_text
from .message_id import MESSAGE_ID_V4, MESSAGE_ID_V6
from .primitives import HOST_V4, HOST_V6, IPV4_BYTES, IPV6_BYTES

Numbers = npt.NDArray[np.signedinteger[Any]]
_SCHEMAS = {IPV4_BYTES: (MESSAGE_ID_V4, HOST_V4), IPV6_BYTES: (MESSAGE_ID_V6, HOST_V6)}


def message_id_column(ip: Ragged, port: Numbers, physical_offset: Ints) -> list[str]:
    """The offset message id of each message. Addresses have 4 or 16 bytes."""
    found = np.empty(len(ip), object)
    for length, (schema, _) in _SCHEMAS.items():
        index = np.flatnonzero(ip.length == length)
        if len(index):
            columns = {"port": port[index], "physical_offset": physical_offset[index]}
            text = encode(schema, {"ip": ip[index], **columns}).buffer.tobytes().hex().upper()
            digits = 2 * schema.sizeof()
            found[index] = [text[at : at + digits] for at in range(0, len(text), digits)]
    return list(found)


def host_text_column(ip: Ragged, port: Numbers) -> list[str]:
    """`ip:port` of each message; each distinct host is formatted once, as there are few."""
    found = np.empty(len(ip), object)
    for length, (_, schema) in _SCHEMAS.items():
        index = np.flatnonzero(ip.length == length)
        if len(index):
            packed = encode(schema, {"ip": ip[index], "port": port[index]}).buffer
            hosts = packed.view(np.dtype((np.void, schema.sizeof())))
            first, which = np.unique(hosts, return_index=True, return_inverse=True)[1:]
            texts = [host_text(ip[i], int(port[i])) for i in index[first].tolist()]
            found[index] = np.array(texts, object)[which]
    return list(found)
