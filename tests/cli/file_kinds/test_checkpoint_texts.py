"""The file `abort`: text that a broker wrote, or that somebody left there."""

from __future__ import annotations

from pathlib import Path

from .told import records, summary


def test_what_is_no_text_is_shown_and_a_long_one_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "abort"
    path.write_bytes(b"12\xff" + b"x" * 10_000)
    (record,) = records(path)
    assert record["type"] == "abort"
    assert record["pid"] == "12\ufffd" + "x" * 4093
    assert summary(path) == {"pid": record["pid"]}


def test_an_old_broker_leaves_it_empty(tmp_path: Path) -> None:
    (tmp_path / "abort").touch()
    assert records(tmp_path / "abort") == [{"type": "abort", "pid": ""}]
