"""MurmurHash3, 128 bits for 64-bit machines, as the bloom filter of a broker uses it (spec 2.6).

The algorithm is in the public domain (Austin Appleby); brokers use Guava's version, with seed 0.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F
_BLOCK = 16
_HALF = 8


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _first(half: int) -> int:
    return _rotated(half * _C1 & _MASK, 31) * _C2 & _MASK


def _second(half: int) -> int:
    return _rotated(half * _C2 & _MASK, 33) * _C1 & _MASK


def _final(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def murmur3_low(data: bytes) -> int:
    """The lower 64 bits of the hash, unsigned: Guava's `HashCode.asLong`.

    >>> hex(murmur3_low(b"hello"))
    '0xcbd8a7b341bd9b02'
    """
    low = high = 0
    whole = len(data) - len(data) % _BLOCK
    for at in range(0, whole, _BLOCK):
        one, other = _halves(data[at : at + _BLOCK])
        low = (_rotated(low ^ _first(one), 27) + high) * 5 + 0x52DCE729 & _MASK
        high = (_rotated(high ^ _second(other), 31) + low) * 5 + 0x38495AB5 & _MASK
    one, other = _halves(data[whole:])
    low ^= _first(one) ^ len(data)
    high ^= _second(other) ^ len(data)
    low = low + high & _MASK
    high = high + low & _MASK
    return _final(low) + _final(high) & _MASK


def _halves(block: bytes) -> tuple[int, int]:
    """Two little-endian numbers; a short block is padded with zeros."""
    return int.from_bytes(block[:_HALF], "little"), int.from_bytes(block[_HALF:], "little")
