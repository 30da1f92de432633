"""Numbers before nouns agree with them: `1 message`, never `1 messages` (store/counted.py)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqstore.store.counted import counted, listed

ROOT = Path(__file__).parents[2]
PACKAGES = ("store", "pipeline", "cli")

THINGS = (
    *("address(?:es)", "batch(?:es)", "bit", "byte", "cell", "change", "character", "check"),
    *("check point", "entr(?:ies)", "epoch", "file", "finding", "group", "index(?:es)", "item"),
    *("kind", "key", "level", "message", "offset", "pair", "part", "piece", "place"),
    *("position", "propert(?:ies)", "queue", "range", "record", "row", "slot", "store", "tick"),
    *("time", "timer", "tombstone", "topic", "unit", "value"),
)
OF_A_KIND = (
    *("batch", "consume", "damaged", "good", "index", "light", "log", "lost", "more", "NUL"),
    *("other", "queue", "timed", "torn", "whole"),
)
SEVERAL = re.compile(
    rf" (?:(?:{'|'.join(OF_A_KIND)}) )*"
    rf"(?:{'|'.join(thing if '(' in thing else thing + 's' for thing in THINGS)})\b(?!/)"
)
BY_HAND = re.compile(r"(?:!=|==|>) 1\b")

# module, the number: why it is never 1, or what stands behind it is not counted by it
ALLOWED: dict[tuple[str, str], str] = {
    ("store/counted.py", "thing if count == 1 else several or thing + 's'"): "the one way",
    ("cli/stats_answer.py", "row['messages_per_second']"): "a rate with a fraction",
    ("store/plan/log.py", "len(gap)"): "more than LARGEST_GAP",
    ("store/recover/recovery.py", "size.value"): "a default of brokers",
    ("store/recover/predict.py", "wanted"): "more heap than there is",
    ("store/repair/config.py", "len(text)"): "more than _TOLD_CHARS",
    ("store/verify/log_chain.py", "needed"): "a record, and the BLANK behind it",
    ("store/verify/queue_units.py", "number['total_size']"): "a whole record",
    ("store/findings/findings.py", "len(counts)"): "told of two or more",
    ("store/verify/layout.py", "len(waiting)"): "one is no finding",
    ("store/verify/log_pass.py", "len(cuts)"): "more than are wanted, and one always is",
    ("store/put/new_message.py", "len(text)"): "more than PROPERTIES_BYTES_MAX",
    ("store/put/producer.py", "len(text)"): "more than TOPIC_BYTES_MAX_V1",
    ("store/put/new_message.py", "len(topic)"): "more than a topic may have",
    ("store/put/new_message.py", "properties_bytes"): "more than PROPERTIES_BYTES_MAX",
    ("store/put/queue_kinds.py", "kinds[0]"): "a word",
    ("store/put/queue_kinds.py", "kinds[1]"): "a word",
    ("store/arrow/export_formats.py", "self.form"): "a word",
    ("cli/arrow_input.py", "form"): "a word",
    ("cli/plan_text.py", "len(paths)"): "a change of one file names it",
    ("cli/put.py", "record['total_size']"): "a whole record",
    ("cli/record_text.py", "len(text)"): "more than _BODY_CHARS",
    ("cli/verdict_text.py", "row.findings"): "told of two or more",
    ("cli/store_text.py", "len(group)"): "a topic of one queue is told otherwise",
}


def in_front(text: ast.JoinedStr) -> Iterator[tuple[ast.FormattedValue, str]]:
    """The values of an f-string, each with what is written behind it."""
    for value, behind in zip(text.values, [*text.values[1:], None], strict=True):
        if isinstance(value, ast.FormattedValue):
            told = behind.value if isinstance(behind, ast.Constant) else ""
            yield value, str(told)


def uncounted(source: str) -> Iterator[tuple[int, str, str]]:
    """Line, number and what is wrong: a fixed plural, or one that is made by hand."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, behind in in_front(node):
            number = ast.unparse(value.value)
            if number.isupper() or number.startswith("counted("):
                continue  # a constant is what it is
            if several := SEVERAL.match(behind):
                yield value.lineno, number, several[0]
            elif BY_HAND.search(number) and re.search(r"'s\b", number):
                yield value.lineno, number, "by hand"


@pytest.mark.parametrize(
    "source",
    [
        'f"{n} messages"',
        'f"{len(rows):,} damaged ranges, the first at {at}"',
        'f"{n} more entries"',
        "f\"{n:,} message{'s' * (n != 1)}\"",
        "f\"{n} file{'s' if n != 1 else ''}\"",
        "f\"{n} message{'s are' if n != 1 else ' is'} lost\"",
    ],
)
def test_a_plural_that_does_not_count_is_seen(source: str) -> None:
    assert list(uncounted(source))


@pytest.mark.parametrize(
    "source",
    [
        "f\"{counted(n, 'message')} of {m}\"",
        'f"more than {LARGEST_BYTES} bytes"',
        'f"{rate} records/s"',
        'f"unit {n} of {name}"',
    ],
)
def test_what_counts_is_let_through(source: str) -> None:
    assert not list(uncounted(source))


def test_numbers_agree_with_what_they_count() -> None:
    """Use `counted`."""
    seen, wrong = set(), []
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        for line, number, what in uncounted(path.read_text(encoding="utf-8")):
            if (name, number) in ALLOWED:
                seen.add((name, number))
            else:
                wrong.append(f"{name}:{line} {number}: {what}")
    assert not wrong
    assert seen == ALLOWED.keys(), "a reason that is no longer needed"


def test_counted() -> None:
    assert [counted(n, "message") for n in (0, 1, 2)] == ["0 messages", "1 message", "2 messages"]
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(1024, "entry", "entries", form=",") == "1,024 entries"


def test_listed() -> None:
    assert [listed(("a", "b", "c"), most) for most in (3, 2, 1)] == ["a, b, c", "a, b and 1 more", "a and 2 more"]
