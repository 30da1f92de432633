"""What `diff` found, for people: a record is a line, whatever is in it."""

from __future__ import annotations

from typing import Any

import pytest

from mqstore.cli.diff_answer import text_of

from .hostile import TEXTS

MESSAGES = {
    "type": "queue_difference",
    "store": "",
    "topic": "t",
    "queue_id": 3,
    "queue_offset": 7,
    "how": "changed",
    "only_a": 0,
    "only_b": 1,
    "changed": 2,
}
PART = {
    "type": "part_difference",
    "store": "",
    "part": "config",
    "name": "topics.json",
    "position": None,
    "how": "changed",
    "a": 1,
    "b": None,
    "count": 1,
}
SENTENCE = {
    "type": "comparison",
    "store": "",
    "same": True,
    "same_log": True,
    "samples": None,
    "quick": False,
    "bytes": 2048,
    "expired_a": 0,
    "expired_b": 0,
    "differences": {},
    "unread": [],
    "first_difference": None,
}


def test_messages() -> None:
    assert text_of(MESSAGES) == ("  messages t/3 from 7 on (the messages differ): 0 only in A, 1 only in B, 2 changed")
    assert "(only in A)" in text_of(MESSAGES | {"how": "only_a"})


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "The same (2.0 KiB of log compared byte by byte)"),
        ({"samples": 0}, "The same (no log was read)"),
        ({"samples": 0, "same_log": None}, "The same (only messages were compared)"),
        (
            {"samples": 0, "same_log": None, "same": False, "differences": {"message": 1}},
            "Not the same: 1 queue with different messages (only messages were compared)",
        ),
        ({"samples": 3, "quick": True}, "The same (--quick compared ends, beginnings of files and samples: 2.0 KiB)"),
        ({"expired_b": 1}, "The same (2.0 KiB of log compared byte by byte; 1 B before them only in B)"),
        ({"store": "/s"}, "/s: The same (2.0 KiB of log compared byte by byte)"),
        (
            {"same": False, "unread": ["index: no such file"]},
            "Unknown whether they are the same: index could not be compared (2.0 KiB of log compared byte by byte)",
        ),
        (
            {"samples": 0, "same_log": None, "same": False, "unread": ["log, queues: of a store in object storage"]},
            "Unknown whether they are the same: log, queues could not be compared",
        ),
        (
            {"same": False, "same_log": None, "differences": {"log": 1}},
            "Not the same: the logs have no bytes in common: 1 range of the log (2.0 KiB of log compared byte by byte)",
        ),
        (
            {"same": False, "same_log": False, "differences": {"unit": 2, "epoch": 2}},
            (
                "Not the same: two different logs: 2 queues with different units, 2 epochs"
                " (2.0 KiB of log compared byte by byte)"
            ),
        ),
        (
            {"same": False, "differences": {"messages": 1}},
            (
                "The same log, but the stores differ: 1 queue with different messages"
                " (2.0 KiB of log compared byte by byte)"
            ),
        ),
        (
            {"same": False, "differences": {"log": 2}, "first_difference": 4096},
            (
                "Two copies of one log, different from 4,096 on: 2 ranges of the log"
                " (2.0 KiB of log compared byte by byte)"
            ),
        ),
    ],
)
def test_a_sentence(more: dict[str, Any], text: str) -> None:
    """What is so is never said where it is not known."""
    assert text_of(SENTENCE | more) == text


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "  config topics.json: A 1, B nothing"),
        ({"how": "only_a", "a": {"b": [1]}}, '  config topics.json: only in A, {"b":[1]}'),
        ({"how": "only_b", "b": "x", "count": 1200}, "  config topics.json: only in B, x (1,200 in total)"),
        ({"part": "log", "position": 0, "a": 10, "b": 20}, "  log topics.json: 20 B not the same"),
        ({"part": "log", "position": 9, "a": 10, "how": "only_a"}, "  log topics.json: 10 B only in A"),
        ({"part": "log", "name": "end"}, "  log end: A 1, B nothing"),
        ({"store": "/s"}, "  /s: config topics.json: A 1, B nothing"),
    ],
)
def test_a_part(more: dict[str, Any], text: str) -> None:
    assert text_of(PART | more) == text


def test_a_long_value_is_cut() -> None:
    assert len(text_of(PART | {"a": "x" * 10_000, "b": ["y" * 10_000]})) < 300


def test_what_is_left_out() -> None:
    assert text_of({"type": "more", "count": 5}) == "  … 5 more (--verbose shows all)"
    unread = {"type": "unread", "store": "/s", "reason": "no such directory"}
    assert text_of(unread) == "not read: /s (no such directory)"


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "record", [MESSAGES | {"topic": "{}"}, MESSAGES | {"store": "{}"}, PART | {"name": "{}"}, PART | {"a": "{}"}]
)
def test_nothing_in_a_store_makes_a_line_of_its_own(record: dict[str, Any], text: str) -> None:
    """Nor does it steer a terminal."""
    shown = text_of({name: text if value == "{}" else value for name, value in record.items()})
    assert shown.isprintable()
