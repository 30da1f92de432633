"""Random damage to the text of a configuration file: kinds that disks, brokers and people make."""

from __future__ import annotations

import random
from collections.abc import Callable

Damage = Callable[[random.Random, bytes], bytes | None]
"""None: the file is missing."""


def _cut(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _page(chance: random.Random, data: bytes) -> bytes:
    """A sector or page that never reached the disk."""
    size = chance.choice((512, 4096))
    begin = chance.randrange(0, len(data), size)
    return data[:begin] + bytes(min(size, len(data) - begin)) + data[begin + size :]


def _not_utf_8(chance: random.Random, data: bytes) -> bytes:
    """A letter inside a text."""
    letters = [at for at in range(1, len(data)) if data[at - 1 : at + 1].isalpha()]
    at = chance.choice(letters) if letters else 0
    return data[:at] + bytes([chance.randrange(0x80, 0x100)]) + data[at + 1 :]


def _bit(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _behind(chance: random.Random, data: bytes) -> bytes:
    return data + chance.choice((b"\0\0", b"}", b"x", b" \n", data, bytes(4096)))


def _shape(chance: random.Random, data: bytes) -> bytes:
    texts = ("null", "[]", "{}", "5", '"x"', "true", "[1]", '{"x":5}', "  ", "\n", '""', "[{}]")
    return chance.choice(texts).encode()


def _value(chance: random.Random, data: bytes) -> bytes:
    """The value behind one colon is another one."""
    colons = [at for at, byte in enumerate(data) if byte == ord(":")]
    if not colons:
        return data
    begin = chance.choice(colons) + 1
    end = begin
    while end < len(data) and data[end] not in b",}":
        end += 1
    if data[begin : begin + 1] in (b"{", b"["):
        return data
    new = chance.choice((b"null", b'""', b"[]", b"5", b'"x"', b"-1", b'"7"'))
    return data[:begin] + new + data[end:]


def _deep(chance: random.Random, data: bytes) -> bytes:
    depth = chance.choice((20, 20_000))
    return b'{"a":' * depth + b"1" + b"}" * depth


DAMAGE: dict[str, Damage] = {
    "whole": lambda chance, data: data,
    "missing": lambda chance, data: None,
    "empty": lambda chance, data: b"",
    "NULs": lambda chance, data: bytes(chance.choice((1, 20, len(data), 4096))),
    "garbage": lambda chance, data: chance.randbytes(chance.randrange(1, 300)),
    "cut": _cut,
    "page": _page,
    "not UTF-8": _not_utf_8,
    "a flipped bit": _bit,
    "behind": _behind,
    "shape": _shape,
    "value": _value,
    "deep": _deep,
}
WEIGHTS = tuple(4 if name in ("value", "cut", "page", "a flipped bit") else 2 for name in DAMAGE)
BACKUP_WEIGHTS = tuple(12 if name in ("whole", "missing") else 1 for name in DAMAGE)


def damaged(chance: random.Random, data: bytes, weights: tuple[int, ...]) -> tuple[str, bytes | None]:
    """(kind, what is left) of one text."""
    kind = chance.choices(tuple(DAMAGE), weights)[0]
    return kind, DAMAGE[kind](chance, data)
