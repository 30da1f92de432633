"""Digests of columns: the same for the same strings wherever they lie, another one for others."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mqstore.formats.derive import Ragged
from mqstore.formats.digest_columns import digest_column, mixed


def some_strings(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    found = [b"", b"\0", b"\0\0", b"a", b"a\0", b"\0a", b"x" * 512, b"x" * 513, b"x" * 5000]
    return found + [rng.randbytes(rng.choice((1, 7, 8, 9, 40, 511, 600))) for _ in range(200)]


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_wherever_they_lie(seed: int) -> None:
    strings = sorted(set(some_strings(seed)))
    first = digest_column(Ragged.of(strings))
    assert len(set(first.tolist())) == len(strings)
    order = list(range(len(strings)))
    random.Random(seed).shuffle(order)
    padded = Ragged.of([b"some bytes before them", *(strings[n] for n in order)])
    assert digest_column(padded)[1:].tolist() == first[order].tolist()


def test_a_missing_string_is_an_empty_one() -> None:
    strings = Ragged(np.zeros(8, np.uint8), np.array([0, 0, 8]), np.array([-1, 0, 0]))
    assert len(set(digest_column(strings).tolist())) == 1


def test_the_order_of_columns_counts() -> None:
    one, other = np.array([1, 2, 0]), np.array([2, 1, 0])
    pairs = mixed((one, other)), mixed((other, one))
    assert (pairs[0][:2] != pairs[1][:2]).all() and pairs[0][0] == pairs[1][1]
    assert mixed((one,)).dtype == np.uint64
    with pytest.raises(ValueError, match="no columns"):
        mixed(())
