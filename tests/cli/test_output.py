"""The four formats, `--fields` and `--output`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.app import run
from mqstore.cli.declared import Format
from mqstore.cli.options import Common
from mqstore.store.errors import InvalidInput

RECORDS: list[dict[str, Any]] = [
    {"type": "message", "topic": "a\x1b[2J", "store_timestamp": 1700000000123, "ok": True},
    {"type": "message", "topic": "=HYPERLINK(1)", "properties": {"KEYS": "k1 k2"}, "n": -5},
    {"type": "damage", "position": 7, "reason": "one\ntwo"},
]
COLUMNS = ("type", "topic", "store_timestamp", "ok", "n", "properties", "position", "reason")


@pytest.fixture
def print_records(capfdbinary: Any) -> Callable[..., str]:
    """Write RECORDS with the given options and give what reached stdout."""

    def write(**options: Any) -> str:
        with Common(utc=True, **options).open_output() as out:
            out.records(iter(RECORDS), text=_text, columns=COLUMNS)
        return str(capfdbinary.readouterr().out.decode())

    return write


def _text(record: Mapping[str, Any]) -> str:
    return f"{record['type']} {record.get('topic', record.get('reason'))}"


def test_text_is_escaped_but_keeps_its_lines(print_records: Callable[..., str]) -> None:
    """A renderer cannot forget to escape."""
    assert print_records() == "message a\\x1b[2J\nmessage =HYPERLINK(1)\ndamage one\ntwo\n"


def test_json_of_a_stream_is_one_array(print_records: Callable[..., str]) -> None:
    """With one record a line."""
    text = print_records(format=Format.JSON)
    assert json.loads(text) == RECORDS
    assert len(text.splitlines()) == len(RECORDS) + 2


def test_json_of_an_empty_stream(capfdbinary: Any) -> None:
    """An empty array, not nothing."""
    with Common(format=Format.JSON).open_output() as out:
        out.records([], text=_text, columns=COLUMNS)
    assert json.loads(capfdbinary.readouterr().out) == []


@pytest.mark.parametrize("error", [InvalidInput("line 4"), KeyboardInterrupt()])
def test_json_of_a_stream_that_ends_early(error: BaseException, capfdbinary: Any) -> None:
    """What is stored or found by then can be read; before the first record nothing is written."""

    def ending(records: list[dict[str, Any]]) -> Iterator[Mapping[str, Any]]:
        yield from records
        raise error

    for records in ([], RECORDS):
        with pytest.raises(type(error)), Common(format=Format.JSON).open_output(growing=True) as out:
            out.records(ending(records), text=_text, columns=COLUMNS)
        text = capfdbinary.readouterr().out
        assert (json.loads(text) if text else []) == records


def test_nothing_follows_a_record_that_is_cut_off() -> None:
    """Ctrl-C came while it was written, to a pipe that is full."""

    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            super().write(data[:9])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Common(format=Format.JSON).open_output() as out:
        out._stream = full = Full()
        out.records(RECORDS, text=_text, columns=COLUMNS)
    assert full.getvalue() == b'[\n{"type"'


def test_json_of_one_record_is_an_object(capfdbinary: Any) -> None:
    """As `inspect` and `recover` print it."""
    with Common(format=Format.JSON).open_output() as out:
        out.record(RECORDS[1], text=_text)
    assert json.loads(capfdbinary.readouterr().out) == RECORDS[1]


def test_ndjson_is_a_record_a_line(print_records: Callable[..., str]) -> None:
    """And no raw control character in it."""
    text = print_records(format=Format.NDJSON)
    assert [json.loads(line) for line in text.splitlines()] == RECORDS
    assert "\x1b" not in text


def test_csv_is_safe_for_spreadsheets(print_records: Callable[..., str]) -> None:
    """Formulas are text, numbers stay numbers, times are times, objects are JSON."""
    rows = list(csv.DictReader(io.StringIO(print_records(format=Format.CSV))))
    assert list(rows[0]) == list(COLUMNS)
    assert rows[0]["topic"] == "a\\x1b[2J"
    assert rows[0]["store_timestamp"] == "2023-11-14T22:13:20.123Z"
    assert rows[0]["ok"] == "true"
    assert rows[1]["topic"] == "'=HYPERLINK(1)"
    assert rows[1]["n"] == "-5"
    assert json.loads(rows[1]["properties"]) == {"KEYS": "k1 k2"}
    assert rows[2]["reason"] == "one\ntwo"


@pytest.mark.parametrize("cell", ["=1", "+1", "-1", "@x", "\tx", "\rx"])
def test_every_formula_sign_is_neutralised(cell: str, capfdbinary: Any) -> None:
    """Also those that hide behind a tab or a return."""
    with Common(format=Format.CSV).open_output() as out:
        out.records([{"topic": cell}], text=_text, columns=("topic",))
    shown = capfdbinary.readouterr().out.decode().splitlines()[1]
    assert shown.strip('"')[0] in "'\\"


def test_fields_choose_order_and_reach_inside(print_records: Callable[..., str]) -> None:
    """In every format."""
    chosen = "properties.KEYS,type"
    rows = [json.loads(x) for x in print_records(format=Format.NDJSON, fields=chosen).splitlines()]
    assert rows[1] == {"properties.KEYS": "k1 k2", "type": "message"}
    assert rows[2] == {"type": "damage"}
    assert print_records(format=Format.CSV, fields=chosen).splitlines() == [
        *("properties.KEYS,type", ",message", "k1 k2,message", ",damage")
    ]
    assert print_records(fields="type, n").splitlines() == ["message\t", "message\t-5", "damage\t"]


def test_unknown_field_is_named(print_records: Callable[..., str]) -> None:
    """With those that there are."""
    with pytest.raises(InvalidInput, match=r"'tpic'.*topic"):
        print_records(fields="tpic")


@pytest.mark.parametrize(
    "command",
    [
        *("verify none", "pipeline verify none", "diff none none", "pipeline diff none none", "trace none key"),
        *("report none --to new", "export none --to new", "pipeline export none --to new"),
        *("pipeline import none --to new", "pipeline rebuild none --to new", "pipeline compact none -t T --to new"),
    ],
)
def test_an_unknown_field_is_told_before_any_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the store is looked at, which is not there, and before anything is made."""
    monkeypatch.chdir(tmp_path)
    assert run([*command.split(), "--fields", "tpic"]) == 2
    assert "--fields: no field 'tpic' here; there are type, " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_output_file_gets_the_data(tmp_path: Path, capfdbinary: Any) -> None:
    """And stdout nothing."""
    path = tmp_path / "out.ndjson"
    with Common(format=Format.NDJSON, output=path).open_output() as out:
        out.records(RECORDS, text=_text, columns=COLUMNS)
    assert [json.loads(line) for line in path.read_text().splitlines()] == RECORDS
    assert capfdbinary.readouterr().out == b""


def test_a_command_that_fails_leaves_the_output_file_alone(tmp_path: Path) -> None:
    """It is opened at the first record."""

    def failing() -> Iterator[Mapping[str, Any]]:
        raise InvalidInput("no")
        yield {}

    path = tmp_path / "kept"
    path.write_text("kept")
    with pytest.raises(InvalidInput), Common(output=path).open_output() as out:
        out.records(failing(), text=_text, columns=COLUMNS)
    assert path.read_text() == "kept"


def test_streams_are_lazy(capfdbinary: Any) -> None:
    """A record is on its way before the next is made."""
    taken = []

    def records() -> Iterator[Mapping[str, Any]]:
        for number in range(3):
            taken.append(number)
            yield {"number": number}

    class Stop(Exception):
        pass

    def stop_at_second(record: Mapping[str, Any]) -> str:
        if record["number"] == 1:
            raise Stop
        return str(record["number"])

    with pytest.raises(Stop), Common().open_output() as out:
        out.records(records(), text=stop_at_second, columns=())
    assert taken == [0, 1]
    assert capfdbinary.readouterr().out == b"0\n"
