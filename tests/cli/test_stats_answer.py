"""Answers of `stats` as lines."""

from __future__ import annotations

from mqstore.cli.options import Common
from mqstore.cli.stats_answer import _text, with_bar


def test_bars_are_drawn_to_the_width() -> None:
    """All on one scale, behind the longest line; none where there is no room."""
    assert with_bar("12 B", 0.5, 6, 30) == "12 B    ██████████▌"
    assert with_bar("12 B", 1, 4, 30) == "12 B  " + "█" * 23
    assert with_bar("12 B", 0, 4, 30) == "12 B"
    assert with_bar("12 B", 1, 20, 30) == "12 B"


def test_names_make_no_lines_of_their_own() -> None:
    counts = dict.fromkeys(("bytes", "messages", "records", "p50_bytes", "p99_bytes", "largest_bytes"), 1)
    row = {**counts, "share": 1.0, "topic": "t\nmqstore: all is well", "tag": "a\rb"}
    line = _text(row, ("topic", "tag"), Common())
    assert line.isprintable() and line.endswith("  t\\nmqstore: all is well  a\\rb")
