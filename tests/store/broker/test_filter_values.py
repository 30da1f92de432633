"""Values of expressions: numbers beside texts, what is unknown, what fails."""

from __future__ import annotations

import pytest

from mqstore.store.broker.filter import Where
from mqstore.store.broker.filter_values import FAILED, Value
from mqstore.store.log.batch import messages

from .batches import batch_of

PROPERTIES = {"a": "5", "price": "34.19", "region": "eu", "quote": "it's", "TAGS": "Aa", "odd": "0x1p3"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # a number beside a text: the text is read as that kind of number, or the broker throws
        ("price > 30", FAILED),
        ("price > 30.0", True),
        ("a = 5 AND a = 5.0 AND 5 = a", True),
        ("a = '5'", True),
        ("a = '5.0'", False),
        ("a > price", False),
        ("a > region", FAILED),
        ("odd = 8.0", True),
        ("a = 3000000000", False),
        # unknown
        ("none > 1", None),
        ("NOT (none > 1)", None),
        ("none = a", None),
        ("a = none", False),
        ("none = other", True),
        ("none IS NULL AND a IS NOT NULL", True),
        ("none > 1 OR a = 5", True),
        ("none > 1 AND region = 'us'", False),
        # failures: what was decided before stays
        ("region = 'us' AND price > 30", False),
        ("region = 'eu' OR price > 30", True),
        ("price > 30 OR region = 'eu'", FAILED),
        # texts
        ("region IN ('us', 'eu')", True),
        ("none NOT IN ('us')", None),
        ("quote = 'it''s'", True),
        ("none NOT CONTAINS 'x'", False),
        ("region NOT CONTAINS 'x'", True),
        ("region CONTAINS '' OR region NOT CONTAINS ''", False),
        ("region STARTSWITH 'e' AND region ENDSWITH 'u'", True),
        # conditions
        ("a", False),
        ("a = 5 = TRUE", True),
        ("NOT a = 5", False),
        ("a BETWEEN 5 AND 5 AND a NOT BETWEEN 7 AND 6", True),
        ("a BETWEEN -9 AND - -5", True),
        ("notes IS NULL AND INa IS NULL", True),
        ("/* a * b */ a /**/ = -- five\n 5", True),
    ],
)
def test_values(text: str, value: Value) -> None:
    assert Where(text).value(PROPERTIES) is value
    [message] = messages(batch_of([PROPERTIES]))
    assert Where(text).takes(message) is (value is True)
