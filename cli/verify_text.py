"""The page that `mqstore verify` prints: the verdict first, then what is wrong, what is left, what now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..store.counted import counted

if TYPE_CHECKING:
    from ..store.next_commands import Command, Given
    from ..store.verify.finding import Finding
    from ..store.verify.verdict import Verdict

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SEVERAL = {"fatal": "fatal"}


def page(path: Path | str, verdict: Verdict, given: Given, *, verbose: bool) -> str:
    """All lines. given: options that next commands need as well. verbose: every finding and its rule,
    otherwise one of each code.
    """
    from ..store.verify.catalogue import Severity

    lines = [_verdict(path, verdict)]
    for severity in reversed(Severity):
        found = [f for f in verdict.findings if f.severity is severity]
        if found:
            lines += ["", f"{severity.label.capitalize()}:"]
            lines += _group(path, found, verbose)
    for text in verdict.unread:
        lines += ["", f"Not looked at: {text}"] if text is verdict.unread[0] else [f"  {text}"]
    lines += ["", *_what_now(path, verdict, given)]
    return "\n".join(lines)


def folded(text: str, columns: int) -> str:
    """The page for a terminal: long lines go on below their text. Commands stay whole."""
    from textwrap import wrap

    told, now, commands = text.partition(_WHAT_NOW)
    lines = []
    for line in told.split("\n"):
        indent = _INDENT.match(line)[0] + "  "  # type: ignore[index]
        rows = wrap(
            line,
            max(columns, _NARROWEST),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines += rows or [""]
    return "\n".join(lines) + now + commands


_WHAT_NOW = "\nWhat now:"
_INDENT = re.compile(r" *")
_NARROWEST = 40


def _verdict(path: Path | str, verdict: Verdict) -> str:
    from ..store.verify.catalogue import Severity
    from ..store.verify.verdict import first_sentence

    said = first_sentence(verdict, path)
    counts = []
    for severity in reversed(Severity):
        number = sum(f.severity is severity for f in verdict.findings)
        if number and severity > Severity.INFO:
            counts.append(counted(number, severity.label, _SEVERAL.get(severity.label, "")))
    tail = f"; {', '.join(counts)}" if counts else ""
    work = f"{counted(verdict.records, 'record')}, {_size(verdict.bytes)} of log"
    if verdict.seconds >= _LONG_S:
        work += f" in {verdict.seconds:.0f} s"
    return f"{path}: {said}{tail} ({work})"


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


def _group(path: Path | str, found: list[Finding], verbose: bool) -> Iterator[str]:
    """Findings of one severity: a line for each code; verbose: for each place, and what the rule is."""
    from ..store.verify.catalogue import catalogue

    by_code: dict[str, list[Finding]] = {}
    for finding in found:
        by_code.setdefault(finding.code, []).append(finding)
    for code, mine in by_code.items():
        if not verbose:
            yield headline(path, mine)
            continue
        yield from (headline(path, [finding]) for finding in mine)
        yield f"      The rule: {catalogue()[code].statement}"
        yield f"      A broker {catalogue()[code].broker}."


def headline(root: Path | str, mine: list[Finding]) -> str:
    """The fault, told of the largest of findings of one code, how many more there are, and the code."""
    from ..store.verify.finding import how_many_more

    first = max(mine, key=lambda finding: finding.count)
    more = how_many_more(first, mine)
    return f"  {first.place(root)}: {first.message}{more}  [{first.code}]"


_LONG_S = 5
"""Shorter runs are told without their time."""
_CODES = 6
"""Codes behind a command before they are folded."""


def _what_now(path: Path | str, verdict: Verdict, given: Given) -> Iterator[str]:
    """The commands that mend it all, in order; then why some of it is beyond repair."""
    from ..store.next_commands import calls_for_something, next_commands
    from ..store.verify.catalogue import Severity

    about = [f for f in verdict.findings if calls_for_something(f)]
    if not about:
        yield "What now: nothing." if not verdict.unread else "What now: check the rest."
        return
    if any(f.severity >= Severity.ERROR for f in about):
        yield "What now: do not start a broker on it yet. Without --apply you see the plan:"
    else:
        yield "What now: a start recovers it; so does this. Without --apply you see the plan:"
    commands = next_commands(
        about, path, given, whole=not verdict.unread, unmendable=verdict.unmendable
    )
    yield from _commands(commands)
    if verdict.unmendable:
        yield f"  {verdict.unmendable}"
    yield from _beyond(about, commands)
    yield f"  mqstore explain {about[0].code}"


def _commands(commands: list[Command]) -> Iterator[str]:
    width = max((len(str(each)) for each in commands if not each.by_hand), default=0)
    for each in commands:
        more = len(each.codes) - _CODES
        codes = ", ".join(each.codes[:_CODES]) + (f" and {more} more" if more > 0 else "")
        yield f"  {each!s:{width}}  # {codes}{', by hand' if each.by_hand else ''}"


def _beyond(about: list[Finding], commands: list[Command]) -> Iterator[str]:
    """Why no command mends what is left."""
    from ..store.next_commands import cure_of
    from ..store.repair.beyond import why_beyond

    mended = {code for each in commands if not each.by_hand for code in each.codes}
    left = {finding.code: finding for finding in reversed(about) if finding.code not in mended}
    for code, finding in sorted(left.items()):
        if not cure_of(finding).startswith(_IN_PLACE):
            yield f"  {code} is beyond repair: {why_beyond(code)}"


_IN_PLACE = ("mv ", "chmod ", "chown ", "gunzip ", "zstd ", "cp ")
"""Commands by hand that mend it."""
