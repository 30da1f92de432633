"""A verdict as JSON and as lines: a code is told once, with its first place."""

from __future__ import annotations

from mqstore.cli.terminal import page_of
from mqstore.cli.verdict_text import by_code, error_lines, verdict_json
from mqstore.store.findings.catalogue import catalogue
from mqstore.store.findings.findings import Finding
from mqstore.store.verify.verdict import Status, Verdict

LOG, QUEUE, START, INFO = "I-022", "I-070", "I-181", "I-051"


def verdict(*findings: Finding) -> Verdict:
    return Verdict(Status.DAMAGED, list(findings), 1, 1, 0.0)


FOUND = verdict(
    Finding.of(START, "/s", "a broker would lose 3 messages"),
    Finding.of(LOG, "/s/commitlog/0", "no record at 7\nmqstore: all is well"),
    Finding.of(QUEUE, "/s/consumequeue/a\nb/0", "is missing"),
    Finding.of(LOG, "/s/commitlog/1", "no record at 9", count=1200),
)


def test_a_code_has_two_lines_whatever_its_texts_are() -> None:
    """What a start does as a whole is told elsewhere."""
    lines = page_of(error_lines(FOUND, "/s")).split("\n")
    assert lines == [
        f"  {LOG}  commitlog/0: no record at 7\\nmqstore: all is well (and 1,200 more)",
        f"         A broker {catalogue()[LOG].broker}.",
        f"  {QUEUE}  consumequeue/a\\nb/0: is missing",
        f"         A broker {catalogue()[QUEUE].broker}.",
    ]


def test_json_has_a_row_for_each_code() -> None:
    found = verdict_json(FOUND, "/s")
    assert found["status"] == "damaged"
    assert [(row["code"], row["count"]) for row in found["findings"]] == [(START, 1), (LOG, 1201), (QUEUE, 1)]
    first = next(row for row in found["findings"] if row["code"] == LOG)
    assert (first["path"], first["offset"]) == ("/s/commitlog/0", None)
    assert first["message"] == "no record at 7\nmqstore: all is well", "escaped by whoever prints it"


def test_what_is_no_error_is_in_neither() -> None:
    assert by_code(verdict(Finding.of(INFO, "/s", "m")).serious) == {}
    assert list(error_lines(verdict(Finding.of(INFO, "/s", "m")), "/s")) == []
