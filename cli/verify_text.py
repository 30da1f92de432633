"""The page that `mqstore verify` prints: the verdict first, then what is wrong, what is left, what now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store.next_commands import Command, Given
    from ..store.verify.catalogue import Severity
    from ..store.verify.finding import Finding
    from ..store.verify.verdict import Verdict

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_WORDS = {"fatal": "fatal", "error": "errors", "warning": "warnings", "info": "infos"}


def page(path: Path | str, verdict: Verdict, given: Given, *, verbose: bool) -> str:
    """All lines. given: options that next commands need as well. verbose: every finding, otherwise the
    first of each code.
    """
    from ..store.verify.catalogue import Severity

    lines = [_verdict(path, verdict)]
    for severity in reversed(Severity):
        found = [f for f in verdict.findings if f.severity is severity]
        if found:
            lines += ["", f"{severity.label.capitalize()}:"]
            lines += _group(path, found, severity, verbose)
    for text in verdict.unread:
        lines += ["", f"Not looked at: {text}"] if text is verdict.unread[0] else [f"  {text}"]
    lines += ["", *_what_now(path, verdict, given, verbose)]
    return "\n".join(lines)


def folded(text: str, columns: int) -> str:
    """The page for a terminal: long lines go on below their text. Commands stay whole."""
    from textwrap import wrap

    told, now, commands = text.partition(_WHAT_NOW)
    lines = []
    for line in told.split("\n"):
        indent = " " * len(_INDENT.match(line)[0])  # type: ignore[index]
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
_INDENT = re.compile(r" *(I-\d{3}  )?")
_NARROWEST = 40


def _verdict(path: Path | str, verdict: Verdict) -> str:
    from ..store.verify.catalogue import Severity
    from ..store.verify.verdict import first_sentence

    said = first_sentence(verdict, path)
    counts = []
    for severity in reversed(Severity):
        number = sum(f.severity is severity for f in verdict.findings)
        if number and severity > Severity.INFO:
            word = _WORDS[severity.label]
            counts.append(f"{number} {word.removesuffix('s') if number == 1 else word}")
    tail = f"; {', '.join(counts)}" if counts else ""
    work = f"{verdict.records} records, {_size(verdict.bytes)} of log"
    if verdict.seconds >= _LONG_S:
        work += f" in {verdict.seconds:.0f} s"
    return f"{path}: {said}{tail} ({work})"


def _size(count: float) -> str:
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


def _group(
    path: Path | str, found: list[Finding], severity: Severity, verbose: bool
) -> Iterator[str]:
    """Findings of one severity by code: what must hold, the first place, how many more."""
    from ..store.verify.catalogue import Severity, catalogue

    by_code: dict[str, list[Finding]] = {}
    for finding in found:
        by_code.setdefault(finding.code, []).append(finding)
    for code, mine in by_code.items():
        if severity is Severity.INFO and not verbose:
            yield f"  {code}  {_place(path, mine[0])}: {mine[0].message}{_more(mine)}"
            continue
        yield f"  {code}  {catalogue()[code].statement}"
        for finding in mine if verbose else mine[:1]:
            more = "" if verbose else _more(mine)
            yield f"         {_place(path, finding)}: {finding.message}{more}"
        yield f"         A broker {catalogue()[code].broker}."


def _more(mine: list[Finding]) -> str:
    """How many are like the first."""
    items = sum(f.count for f in mine) - 1
    if not items:
        return ""
    return (
        f" (and {items} more, in {len(mine)} places)" if len(mine) > 1 else f" (and {items} more)"
    )


def _place(root: Path | str, finding: Finding) -> str:
    base = os.fspath(root)
    inside = finding.path.startswith(base + os.sep)
    shown = finding.path[len(base) + 1 :] if inside else finding.path
    return shown if finding.offset is None else f"{shown} @{finding.offset}"


_LONG_S = 5
"""Shorter runs are told without their time."""
_CODES = 6
"""Codes behind a command before they are folded."""
_BY_HAND = 8
"""Commands by hand before they are folded."""


def _what_now(path: Path | str, verdict: Verdict, given: Given, verbose: bool) -> Iterator[str]:
    """The commands that mend it all, in order; then what is left to do by hand."""
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
    yield from _commands([each for each in commands if not each.by_hand], None)
    by_hand = [each for each in commands if each.by_hand]
    if by_hand:
        yield "  By hand, since no repair mends it:"
        yield from _commands(by_hand, None if verbose else _BY_HAND)
    yield f"  mqstore explain {about[0].code}"


def _commands(commands: list[Command], most: int | None) -> Iterator[str]:
    shown = commands[:most]
    width = max((len(str(command)) for command in shown), default=0)
    for command in shown:
        more = len(command.codes) - _CODES
        codes = ", ".join(command.codes[:_CODES]) + (f" and {more} more" if more > 0 else "")
        yield f"  {command!s:{width}}  # {codes}"
    if len(commands) > len(shown):
        yield f"  and {len(commands) - len(shown)} more commands (--verbose)"
