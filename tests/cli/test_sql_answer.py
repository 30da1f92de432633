"""The answer of a query as it is printed: numbers that JSON has not, bytes, names of columns."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from mqstore.cli.declared import Format
from mqstore.cli.options import Common
from mqstore.cli.sql_answer import print_answer, shown_columns
from mqstore.store.errors import InvalidInput

NAN, INF = float("nan"), float("inf")


def printed(rows: pa.RecordBatch, capfdbinary: pytest.CaptureFixture[bytes]) -> list[object]:
    """The rows as JSON, and nothing that is none."""
    gone = [{"type": "unread", "store": "/s", "reason": "r"}]
    print_answer(
        [rows], shown_columns(dict.fromkeys(rows.schema.names, False), Common()), gone, Common(format=Format.JSON)
    )

    def refused(name: str) -> object:
        raise AssertionError(f"{name} is no JSON")

    *found, last = json.loads(capfdbinary.readouterr().out, parse_constant=refused)
    assert last == gone[0]
    return list(found)


def test_numbers_that_are_none_are_texts_wherever_they_stand(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Inside of lists, objects and maps, too."""
    rows = pa.record_batch(
        {
            "plain": [NAN, 1.5],
            "list": [[INF, 2.0], []],
            "deep": [[[-INF]], None],
            "object": [{"a": NAN, "b": "NaN"}, {"a": 1.0, "b": "x"}],
            "map": pa.array([[("k", INF)], []], pa.map_(pa.string(), pa.float64())),
        }
    )
    assert printed(rows, capfdbinary) == [
        {
            "plain": "nan",
            "list": ["inf", 2.0],
            "deep": [["-inf"]],
            "object": {"a": "nan", "b": "NaN"},
            "map": {"k": "inf"},
        },
        {"plain": 1.5, "list": [], "deep": None, "object": {"a": 1.0, "b": "x"}, "map": {}},
    ]


def test_values_that_json_has_not_are_texts_inside_of_others(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Bytes of objects have two names as columns have; those of a list have none."""
    day, moment = date(2026, 11, 20), datetime(2026, 11, 20, 21, 38)
    rows = pa.record_batch(
        {
            "list": [[b"text", b"\xff", None]],
            "object": [{"a": b"text", "b": b"\xff", "c": day, "d": [moment, None]}],
            "exact": [[Decimal("1.50")]],
            "map": pa.array([[(b"\xffk", [b"x"])]], pa.map_(pa.binary(), pa.list_(pa.binary()))),
        }
    )
    assert printed(rows, capfdbinary) == [
        {
            "list": ["text", {"base64": "/w=="}, None],
            "object": {"a": "text", "b_base64": "/w==", "c": "2026-11-20", "d": ["2026-11-20T21:38:00.000", None]},
            "exact": ["1.50"],
            "map": {"\\xffk": ["x"]},
        }
    ]


def test_columns_of_bytes_have_two_names() -> None:
    columns = {"topic": False, "body": True}
    assert shown_columns(columns, Common(fields="body_base64")) == ["topic", "body", "body_base64"]
    for name in ("topic_base64", "nothing"):
        with pytest.raises(InvalidInput, match=f"no field '{name}'"):
            shown_columns(columns, Common(fields=name))
