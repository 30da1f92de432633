"""Bodies compressed as a producer's client does it (spec 01, 1.3)."""

from __future__ import annotations

from dataclasses import replace

from ...formats.sys_flag import COMPRESSION_MASK, SysFlag
from ..broker.write_profile import WriterProfile
from ..errors import InvalidInput
from ..log.body import pack
from .new_message import NewMessage
from .stored_body import FLAGS

OVER_BYTES = 4096
"""A client's `compressMsgBodyOverHowmuch`: smaller bodies stay as they are."""
_WITH_KINDS = "5"
"""Clients from this generation on name the kind; older ones know zlib, and no bits for it."""


def compressed(
    message: NewMessage, kind: str, profile: WriterProfile, over_bytes: int = OVER_BYTES
) -> NewMessage:
    """The message with its body compressed where it has at least `over_bytes`.

    kind: zlib, lz4 or zstd. Raises InvalidInput for one that the generation's clients do not know,
    and for a body that is compressed already.
    """
    if kind not in FLAGS:
        raise InvalidInput(f"no such compression: {kind}", hint="zlib, lz4 or zstd")
    if message.sys_flag & SysFlag.COMPRESSED:
        raise InvalidInput("the body is compressed already")
    if len(message.body) < over_bytes:
        return message
    kinds = profile.version >= _WITH_KINDS
    if kind != "zlib" and not kinds:
        raise InvalidInput(f"clients of {profile.version} compress with zlib only")
    bits = SysFlag.COMPRESSED | (FLAGS[kind] if kinds else 0)
    sys_flag = message.sys_flag & ~COMPRESSION_MASK | int(bits)
    return replace(message, body=pack(message.body, sys_flag), sys_flag=sys_flag)
