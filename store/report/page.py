"""One HTML file about one or more stores. It needs no network and no script.

The template escapes all text that comes out of a store. A policy in the page also forbids scripts and requests,
whatever a browser makes of that text.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..counted import bytes_text, counted, listed
from ..findings.catalogue import Severity, catalogue
from ..findings.findings import Finding, how_many_more
from ..output.escaped import templates
from ..verify.verdict import Status, before_timers, give_levels, what_now
from .figures import TimeText, pictures_of
from .gather import STATUS, Seen

CODES_SHOWN = 60
_UNREAD_SHOWN = 40
_PARTS_SHOWN = 6
"""At most this many codes are named behind a command."""


class StoreRow(NamedTuple):
    """A store in the table at the top. status: `clean`, `unclean`, `damaged`, `unreadable`."""

    root: str
    status: str
    word: str
    sentence: str
    records: int
    bytes: int


class Section(NamedTuple):
    """The part of the page about one store, made as soon as the store was looked at."""

    row: StoreRow
    html: str


def section_of(seen: Seen, number: int, time: TimeText) -> Section:
    """Return the part about one store. number: of the store on the page, from 1 on. time: formats times."""
    verdict = seen.verdict
    row = StoreRow(
        seen.root, verdict.status.value, STATUS[verdict.status], seen.sentence, verdict.records, verdict.bytes
    )
    template = templates().get_template("store.html")
    html = template.render(
        number=number,
        row=row,
        seen=seen,
        what_now=_what_now(seen),
        commands=[_command(command) for command in seen.commands],
        findings=_findings(seen),
        unread=_folded(verdict.unread, _UNREAD_SHOWN),
        pictures=pictures_of(seen, time),
        bytes_text=bytes_text,
        sign=SIGNS[row.status],
    )
    return Section(row, html)


def unreadable(root: str, error: str, number: int) -> Section:
    """Return the part about a store that could not be looked at."""
    row = StoreRow(root, "unreadable", "cannot be read", error, 0, 0)
    html = templates().get_template("unread.html").render(number=number, row=row, sign="?")
    return Section(row, html)


SIGNS: Mapping[str, str] = {"clean": "✓", "unclean": "!", "damaged": "✗", "unreadable": "?"}
"""Sign and word tell a status: its colour only repeats that."""


def page_of(sections: Sequence[Section], version: str, made: str) -> Iterator[str]:
    """Yield the file, piece by piece. version: of mqstore. made: when, and how, in a sentence."""
    style = templates().get_template("style.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    rows = [section.row for section in sections]
    page = templates().get_template("page.html")
    return page.generate(
        style=style,
        digest=digest,
        title=_title(rows),
        rows=rows,
        signs=SIGNS,
        sections=[section.html for section in sections],
        bytes_text=bytes_text,
        version=version,
        made=made,
    )


def _title(rows: Sequence[StoreRow]) -> str:
    if len(rows) == 1:
        return f"{rows[0].root}: {rows[0].word}"
    bad = sum(row.status in (Status.DAMAGED.value, "unreadable") for row in rows)
    return f"{counted(len(rows), 'store')}, {bad} damaged or unreadable"


def _what_now(seen: Seen) -> str:
    """Return the sentence before the commands."""
    verdict = seen.verdict
    if seen.tidy:
        if verdict.unread:
            return "Check the rest."
        levels = give_levels(verdict)
        now = levels or before_timers(verdict) or ("nothing must be done" if seen.commands else "nothing")
        more = f"; this removes the {'other ' if levels else ''}warnings" if seen.commands else ""
        return f"{now[:1].upper()}{now[1:]}{more}."
    now = what_now(verdict, seen.commands)
    plan = verdict.serious and any("--apply" in each.words for each in seen.commands)
    return f"{now[:1].upper()}{now[1:]}.{' Without --apply you see the plan.' if plan else ''}"


def _command(command: Any) -> tuple[str, str]:
    return str(command), f"{listed(command.codes, _PARTS_SHOWN)}{', by hand' if command.by_hand else ''}"


def _findings(seen: Seen) -> tuple[list[dict[str, Any]], int]:
    """Return a row for each code, the worst first, and how many codes are not shown."""
    by_code: dict[str, list[Finding]] = {}
    for finding in seen.verdict.findings:
        by_code.setdefault(finding.code, []).append(finding)
    rows = []
    for code, mine in list(by_code.items())[:CODES_SHOWN]:
        first = max(mine, key=lambda finding: finding.count)
        rows.append(
            {
                "code": code,
                "severity": first.severity.label,
                "bad": first.severity >= Severity.ERROR,
                "place": first.place(seen.root),
                "message": f"{first.message}{how_many_more(first, mine)}",
                "broker": catalogue()[code].broker,
            }
        )
    return rows, max(0, len(by_code) - CODES_SHOWN)


def _folded(texts: Iterable[str], most: int) -> list[str]:
    found = list(texts)
    more = len(found) - most
    return [*found[:most], *([f"and {more} more"] if more > 0 else [])]
