"""`mqstore get --addresses`: look up many addresses, and print one answer for each, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..store.counted import counted
from ..store.errors import InvalidInput, NotFound
from ..store.log.message import Message
from ..store.search.find import Address, Finder, parse_address
from ..store.search.store import FoundMessage, StoreReader, Via
from .get_answer import GetQuestion, print_hex
from .ndjson_input import opened, whole_lines
from .options import Common
from .output import Output
from .searched_text import check_log

_SHOWN = 1000
"""Characters of an address that its answer repeats."""


class _Line(NamedTuple):
    """A line of the input: its number from 1 on, its text, its address."""

    number: int
    text: str
    address: Address


class _Answer(NamedTuple):
    line: _Line
    found: FoundMessage | NotFound


def answer_addresses(path: Path, source: str, question: GetQuestion, common: Common) -> None:
    """Print a message, or that it is missing, for each line of a file, or of stdin for `-`.

    Raises NotFound at the end if any message is missing, InvalidInput for a line that is not an address;
    Missing, Refused if the log is missing.
    """
    count = _AnswerCount()
    with StoreReader(path, common.config()) as store, Finder(store, common.warn) as finder, common.open_output() as out:
        check_log(store.layout, common)
        answers = count.counted(_answers(finder, _portions(source, count), out))
        _print(store, answers, question, common, out)
        if count.wrong is not None:  # before `out` replaces the file of --output
            raise count.wrong
    if count.missing:
        what = counted(count.missing, "address has", "addresses have")
        raise NotFound(f"{what} no message, out of {count.all}", path=path)


class _AnswerCount:
    """Counts answers. wrong: the error of the line that is not an address, where reading the input ended."""

    def __init__(self) -> None:
        self.all = 0
        self.missing = 0
        self.wrong: InvalidInput | None = None

    def counted(self, answers: Iterator[_Answer]) -> Iterator[_Answer]:
        for answer in answers:
            self.all += 1
            self.missing += isinstance(answer.found, NotFound)
            yield answer


def _answers(finder: Finder, portions: Iterator[list[_Line]], out: Output) -> Iterator[_Answer]:
    """Yield the answers of each portion, then flush: a program that writes addresses one by one gets each answer."""
    for lines in portions:
        yield from map(_Answer, lines, finder.find([line.address for line in lines]))
        out.flush()


def _portions(source: str, count: _AnswerCount) -> Iterator[list[_Line]]:
    """Lines as they arrive, up to the first that is not an address; empty lines are left out."""
    number = 0
    with opened(source) as descriptor:
        for data in whole_lines(descriptor, source, None, lambda _: None):
            lines: list[_Line] = []
            for line in (data or b"").split(b"\n"):
                number += 1
                text = line.decode("utf-8", "surrogateescape").strip()
                if not text:
                    continue
                try:
                    lines.append(_Line(number, text, parse_address(text)))
                except InvalidInput as error:
                    count.wrong = InvalidInput(f"line {number}: {error.message}", hint=error.hint)
                    yield lines
                    return
            yield lines


# -- printing -------------------------------------------------------------------------------------


def _print(store: StoreReader, answers: Iterator[_Answer], question: GetQuestion, common: Common, out: Output) -> None:
    if out.format == "hex":
        print_hex(store, _found(answers, common), common, out)
    elif out.format == "body":
        for found in _found(answers, common):
            out.raw(question.body_of(_message(found, question), common.warn))
    else:
        from .record_text import RecordText
        from .record_types import columns_of

        records = (_record(answer, question) for answer in answers)
        out.records(records, text=RecordText(common.utc), columns=columns_of("message", "missing"))


def _record(answer: _Answer, question: GetQuestion) -> dict[str, Any]:
    line, found = answer.line, answer.found
    if isinstance(found, NotFound):
        address = line.text[:_SHOWN].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return {"type": "missing", "line": line.number, "address": address, "reason": found.message}
    record = question.json_of(_message(found, question))
    if found.via in (Via.INDEX, Via.SCAN) and line.address.unique_key is not None:
        record["found_by"] = found.via.value
    return record


def _message(found: FoundMessage, question: GetQuestion) -> Message:
    """The message to show: for a message inside a batch record that record, if whole records were asked for."""
    inner = found.message.inner
    return inner.record if inner is not None and question.whole else found.message


def _found(answers: Iterator[_Answer], common: Common) -> Iterator[FoundMessage]:
    """The messages found. Missing ones are reported on stderr: bodies and hex have no place for them."""
    for answer in answers:
        if isinstance(answer.found, NotFound):
            common.warn(f"line {answer.line.number}: {answer.found.message}")
        else:
            yield answer.found
