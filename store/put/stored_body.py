"""Bodies that come in, as they are to be stored: what was shown decompressed is compressed again.

Beside a body stand sys_flag and `body_compression`, the codec it was shown without. What the new
record says of its body is true, or the message is refused.

Bodies compressed as a producer's client does it (spec 01, 1.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...formats.hashing import crc31
from ...formats.sys_flag import COMPRESSION_MASK, SysFlag
from ..broker.profiles import WriterProfile
from ..errors import InvalidInput
from ..log.message import TooLarge, compression_of, pack, unpack_whole
from .new_message import NewMessage

FLAGS = {"zlib": SysFlag.ZLIB, "lz4": SysFlag.LZ4, "zstd": SysFlag.ZSTD}
"""The bits of sys_flag that name a codec."""
COMPRESSED = int(SysFlag.COMPRESSED)


def stored_body(
    body: bytes, sys_flag: int | None, compression: str | None, *, as_stored: bool
) -> tuple[bytes, int]:
    """A body as it is to be stored, and its sys_flag.

    sys_flag: None for one that was not given. compression: the codec that the body is shown without.
    as_stored: the body is marked as one that comes as it was stored. Raises InvalidInput where
    these do not fit together, and for a body that is called compressed and does not decompress.
    """
    if compression:
        return _packed(body, sys_flag, compression)
    flags = sys_flag or 0
    if flags & COMPRESSED and not as_stored:
        _require_compressed(body, flags)
    return body, flags


def _packed(body: bytes, sys_flag: int | None, compression: str) -> tuple[bytes, int]:
    if compression not in FLAGS:
        raise InvalidInput(f"body_compression: not one of {', '.join(FLAGS)}: {compression!r}")
    flags = COMPRESSED | int(FLAGS[compression]) if sys_flag is None else sys_flag
    if (said := compression_of(flags)) != compression:
        raise InvalidInput(
            f"body_compression says {compression}, sys_flag {flags} {said or 'not compressed'}"
        )
    try:
        return pack(body, flags), flags
    except ValueError as error:
        raise InvalidInput(f"body: {error}") from None


def _require_compressed(body: bytes, sys_flag: int) -> None:
    try:
        unpack_whole(body, sys_flag)
    except TooLarge:
        pass  # so it is compressed
    except ValueError as error:
        raise InvalidInput(
            f"body: sys_flag {sys_flag} says it is compressed, but it {error}",
            hint="body_compression says what it was shown without, raw or body_error that it is as stored",
        ) from None


def stored_body_of(
    record: Mapping[str, Any], body: bytes, sys_flag: int | None
) -> tuple[bytes, int]:
    """The same for the JSON object of a message. Raises InvalidInput."""
    raw = record.get("raw") is True
    compression = None if raw else record.get("body_compression")
    return stored_body(body, sys_flag, compression, as_stored=raw or bool(record.get("body_error")))


def wrong_crc(body: bytes, known: object) -> int:
    """A checksum for a body that is known to be corrupted: the one it had, never one that fits."""
    crc = crc31(body)
    given = known if type(known) is int and 0 <= known < 1 << 31 else crc
    return given if given != crc else crc ^ 1


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
