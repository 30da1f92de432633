"""The filter language against RocketMQ's own parser and evaluation, expression by expression."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from mqstore.store.broker.filter import Where
from mqstore.store.broker.filter_values import FAILED, Value
from mqstore.store.errors import InvalidInput
from mqstore.store.queues.filter_bits import BloomFilter

from .. import slices
from ..store.broker.batches import batch_of
from .filters import VERSIONS, Filters, missing

pytestmark = pytest.mark.interop

SEED = 20261121
FEW, MANY = 1000, 4000
"""Expressions."""
NAMES = ("a", "b", "TAGS", "price", "$x_1")
TEXTS = (
    *("5", "05", "-5", "+7", "5.0", " 5", "5 ", "1e2", "x", "abc", "'", "中国", "😀", "true", "TRUE"),
    *("3000000000", "9223372036854775807", "9223372036854775808", "NaN", "Infinity", "-Infinity"),
    *("-0.0", "0.0", "0x1p3", "0x", "1_0", "5d", "5F", "5L", "٣", "1e400", ".5", "5.", ".", "inf"),
)
NUMBERS = ("0", "5", "7", "5L", "3000000000", "007", "1.5", "5.", ".5", "5.0", "1e2", "0.0", "1e400")
ODD = ("9223372036854775807", "9223372036854775808", "2147483648", "5.0E0", "1L", "00.5")


class Generator:
    """Expressions by the grammar, with mistakes among them, all from one seed."""

    def __init__(self, seed: int, *, text_tests: bool) -> None:
        self._random = random.Random(seed)
        self._kinds = 8 if text_tests else 6

    def __call__(self) -> str:
        text = self._either(3)
        if self._random.random() < 0.1:
            text = self._spoiled(text)
        return text

    def message(self) -> dict[str, str]:
        return {n: self._pick(TEXTS) for n in NAMES if self._random.random() < 0.7}

    def _pick(self, choices: tuple[str, ...]) -> str:
        return self._random.choice(choices)

    def _either(self, depth: int) -> str:
        return self._joined(self._both, depth, (" OR ", " or ", "\tOr\n"))

    def _both(self, depth: int) -> str:
        return self._joined(self._equality, depth, (" AND ", " and ", " /* x */AND "))

    def _joined(self, part: Callable[[int], str], depth: int, words: tuple[str, ...]) -> str:
        text = part(depth)
        while self._random.random() < 0.25:
            text += self._pick(words) + part(depth)
        return text

    def _equality(self, depth: int) -> str:
        text = self._comparison(depth)
        while self._random.random() < 0.35:
            kind = self._pick(("=", "<>", " IS NULL", " is not null"))
            text += kind if " " in kind else f"{kind}{self._comparison(depth)}"
        return text

    def _comparison(self, depth: int) -> str:
        text = self._unary(depth)
        chance = 0.6
        while self._random.random() < chance:
            chance = 0.1
            text += self._right(depth)
        return text

    def _right(self, depth: int) -> str:
        maybe_not = self._pick(("", "", " NOT "))
        kind = self._random.randrange(self._kinds)
        if kind < 3:
            return self._pick((" > ", ">=", "<", " <= ")) + self._unary(depth)
        if kind < 5:
            bounds = f"{self._unary(depth)} AND {self._unary(depth)}"
            return f"{maybe_not} BETWEEN {bounds}"
        if kind < 6:
            texts = ",".join(self._text() for _ in range(self._random.randint(1, 7)))
            return f"{maybe_not} IN ({texts})"
        return f"{maybe_not} {self._pick(('CONTAINS', 'startswith', 'EndsWith'))} {self._text()}"

    def _unary(self, depth: int) -> str:
        kind = self._random.randrange(20)
        if kind == 0:
            return "-" + self._unary(depth)
        if kind == 1:
            return "+" + self._unary(depth)
        if kind == 2:
            return "NOT " + self._unary(depth)
        if kind < 5 and depth:
            return f"({self._either(depth - 1)})"
        if kind < 14:
            return self._pick(NAMES)
        if kind < 17:
            return self._pick(NUMBERS if self._random.random() < 0.8 else ODD)
        return self._text() if kind < 19 else self._pick(("TRUE", "false", "NULL"))

    def _text(self) -> str:
        text = "" if self._random.random() < 0.1 else self._pick(TEXTS)
        return "'" + text.replace("'", "''") + "'"

    def _spoiled(self, text: str) -> str:
        at = self._random.randrange(len(text))
        end = at + self._random.randrange(3)
        return text[:at] + self._pick(("", "'", "(", ")", "NOT ", "#", "--", " 5 ", "?")) + text[end:]


LETTERS: dict[Value, str] = {True: "T", False: "F", None: "N", FAILED: "E"}


@pytest.fixture(scope="module", params=VERSIONS)
def filters(request: pytest.FixtureRequest) -> Iterator[Filters]:
    if why_not := missing(request.param):
        pytest.skip(f"the filters of {request.param} cannot be asked: {why_not}")
    with Filters(request.param) as asked:
        yield asked


def test_expressions(filters: Filters) -> None:
    check(filters, SEED, FEW)


@pytest.mark.slow
def test_more_expressions(filters: Filters) -> None:
    check(filters, slices.SEED, slices.share(MANY) + FEW)


def check(filters: Filters, seed: int, count: int) -> None:
    """Ask so many expressions of both."""
    # CONTAINS, STARTSWITH and ENDSWITH are words of the language since 5.0
    generator = Generator(seed, text_tests=not filters.version.startswith("4."))
    messages = [generator.message() for _ in range(60)]
    batch = batch_of(messages)
    taken = 0
    for _ in range(count):
        expression = generator()
        theirs = filters.ask(expression, messages)
        try:
            where = Where(expression)
        except InvalidInput:
            assert theirs is None, expression
            continue
        assert theirs is not None, expression
        ours = "".join(LETTERS[where.value(message)] for message in messages)
        assert ours == theirs, expression
        assert where.mask(batch).tolist() == [letter == "T" for letter in theirs], expression
        taken += 1
    assert taken > count // 4


def test_bits_of_consumer_groups(filters: Filters) -> None:
    chance = random.Random(SEED)
    for _ in range(40):
        rate, consumers = chance.randrange(1, 100), chance.randrange(1, 300)
        texts = ["".join(chance.choices("abz_-%订单😀", k=n)) for n in (0, *range(1, 40))]
        bits, positions = filters.bits([f"{text}#T" for text in texts], rate, consumers)
        bloom = BloomFilter.of(rate, consumers)
        assert bloom.bits == bits
        assert [list(bloom.positions(text, "T")) for text in texts] == positions
