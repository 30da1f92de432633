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


def test_times_that_python_has_not(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A time of ms taken for one of seconds, say; and what lies between two times."""
    far = 1_763_674_634_829_000_000
    times = pa.array([far, None], pa.timestamp("us", "UTC"))
    inside = pa.array([{"at": far}, None], pa.struct({"at": pa.int64()}))
    rows = pa.record_batch(
        {
            "time": times,
            "day": pa.array([-735_000, 0], pa.int32()).cast(pa.date32()),
            "object": inside.cast(pa.struct({"at": pa.timestamp("us", "UTC")})),
            "between": pa.array([(0, 0, 46_825_000_000), (1, -2, 0)], pa.month_day_nano_interval()),
        }
    )
    assert printed(rows, capfdbinary) == [
        {"time": "57858-08-16T20:47:09.000000Z", "day": "-043-08-22", "object": {"at": far}, "between": "PT46.825S"},
        {"time": None, "day": "1970-01-01", "object": None, "between": "P1M-2D"},
    ]


def test_columns_of_bytes_have_two_names() -> None:
    columns = {"topic": False, "body": True}
    assert shown_columns(columns, Common(fields="body_base64")) == ["topic", "body", "body_base64"]
    for name in ("topic_base64", "nothing"):
        with pytest.raises(InvalidInput, match=f"no field '{name}'"):
            shown_columns(columns, Common(fields=name))
