"""The page of `mqstore verify`: the verdict, then findings, parts that were not checked, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..store.counted import bytes_text, counted, listed
from .plan_text import first_ones
from .terminal import page_of
from .verdict_text import by_code

if TYPE_CHECKING:
    from ..store.findings.findings import Finding
    from ..store.findings.next_commands import Given, NextCommand
    from ..store.verify.verdict import Verdict

_SEVERAL = {"fatal": "fatal"}


def page(path: Path | str, verdict: Verdict, given: Given, *, verbose: bool) -> str:
    """The whole page. given: options that proposed commands repeat. verbose: list every finding and its rule, not one
    finding of each code.
    """
    from ..store.findings.catalogue import Severity

    lines = [verdict_line(path, verdict)]
    for severity in reversed(Severity):
        found = [f for f in verdict.findings if f.severity is severity]
        if found:
            lines += ["", f"{severity.label.capitalize()}:"]
            lines += _group(path, found, verbose)
    for text in verdict.unread:
        lines += ["", f"Not checked: {text}"] if text is verdict.unread[0] else [f"  {text}"]
    lines += ["", *_what_now(path, verdict, given, verbose)]
    return page_of(lines)


def folded(text: str, columns: int) -> str:
    """The page for a terminal: long lines are wrapped and indented. Lines with commands stay whole."""
    from textwrap import wrap

    findings, heading, commands = text.partition(_WHAT_NOW)
    lines = []
    for line in findings.split("\n"):
        indent = _INDENT.match(line)[0] + "  "  # type: ignore[index]
        rows = wrap(
            line, max(columns, _NARROWEST), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        lines += rows or [""]
    return "\n".join(lines) + heading + commands


_WHAT_NOW = "\nWhat now:"
_INDENT = re.compile(r" *")
_NARROWEST = 40


def verdict_line(path: Path | str, verdict: Verdict) -> str:
    """The verdict, the number of findings, and how much was read."""
    from ..store.findings.catalogue import Severity
    from ..store.verify.verdict import first_sentence

    sentence = first_sentence(verdict, path)
    counts = []
    for severity in reversed(Severity):
        number = sum(f.severity is severity for f in verdict.findings)
        if number and severity > Severity.INFO:
            counts.append(counted(number, severity.label, _SEVERAL.get(severity.label, "")))
    tail = f"; {', '.join(counts)}" if counts else ""
    work = f"{counted(verdict.records, 'record')}, {bytes_text(verdict.bytes)} of log"
    if verdict.seconds >= _LONG_S:
        work += f" in {verdict.seconds:.0f} s"
    return f"{path}: {sentence}{tail} ({work})"


def _group(path: Path | str, found: list[Finding], verbose: bool) -> Iterator[str]:
    """Lines for findings of one severity: one for each code; with verbose one for each finding, and the rules."""
    from ..store.findings.catalogue import catalogue

    for code, mine in by_code(found).items():
        if not verbose:
            yield headline(path, mine)
            continue
        yield from (headline(path, [finding]) for finding in mine)
        yield f"      The rule: {catalogue()[code].statement}"
        yield f"      A broker {catalogue()[code].broker}."


def headline(root: Path | str, mine: list[Finding]) -> str:
    """The line for findings of one code: the largest one, how many more there are, the code."""
    from ..store.findings.findings import how_many_more

    first = max(mine, key=lambda finding: finding.count)
    more = how_many_more(first, mine)
    return f"  {first.place(root)}: {first.message}{more}  [{first.code}]"


_LONG_S = 5
"""Seconds from which the duration of a run is shown."""
_CODES = 6
"""Codes shown behind a command; the others are only counted."""


def _what_now(path: Path | str, verdict: Verdict, given: Given, verbose: bool) -> Iterator[str]:
    """The commands that mend the findings, in order; then why some findings are beyond repair."""
    from ..store.disk.layout import is_uri
    from ..store.findings.next_commands import calls_for_something, refused
    from ..store.verify.verdict import commands_of, tidying_of, what_now

    about = [f for f in verdict.findings if calls_for_something(f)]
    if not about:
        yield from _nothing_urgent(verdict, tidying_of(verdict, path, given), verbose)
        return
    commands = commands_of(verdict, about, path, given)
    plan = any("--apply" in each.words for each in commands)
    yield f"What now: {what_now(verdict, commands)}.{_SHOWN_BEFORE if plan else ''}"
    yield from _commands(commands)
    if is_uri(str(path)):
        yield f"  {_ELSEWHERE}"
    else:
        if verdict.unmendable:
            yield f"  {verdict.unmendable}"
        yield from _beyond(about, commands, no_plan=bool(verdict.unmendable or refused(about)))
    yield f"  mqstore explain {about[0].code}"


_SHOWN_BEFORE = " Without --apply you see the plan:"
_ELSEWHERE = "a store in object storage cannot be repaired: copy it to a disk and run verify there"
_TIDY_SHOWN = 6
"""Commands that mend warnings, shown without --verbose."""


def _nothing_urgent(verdict: Verdict, tidy: list[NextCommand], verbose: bool) -> Iterator[str]:
    """What to do with a store that has no errors. tidy: commands that mend its warnings."""
    from ..store.verify.verdict import before_timers, give_levels

    levels = give_levels(verdict)
    must = levels or before_timers(verdict)
    if verdict.unread:
        yield "What now: check the rest."
    elif not tidy:
        yield f"What now: {must or 'nothing'}."
    else:
        plan = any("--apply" in each.words for each in tidy)
        removes = f"This removes the {'other ' if levels else ''}warnings."
        yield f"What now: {must or 'nothing has to be done'}. {removes}{_SHOWN_BEFORE if plan else ''}"
        shown, more = first_ones(tidy, None if verbose else _TIDY_SHOWN)
        yield from _commands(shown)
        yield from more


def _commands(commands: Sequence[NextCommand]) -> Iterator[str]:
    width = max((len(str(each)) for each in commands if not each.by_hand), default=0)
    for each in commands:
        yield f"  {each!s:{width}}  # {listed(each.codes, _CODES)}{', by hand' if each.by_hand else ''}"


def _beyond(about: list[Finding], commands: list[NextCommand], *, no_plan: bool) -> Iterator[str]:
    """Why no command mends what remains. no_plan: no plan can be made for this store, whatever is wrong with it."""
    from ..store.findings.next_commands import INTERRUPTED, MENDS, cure_of, refused
    from ..store.repair.recheck import why_unrepairable

    if any(finding.code == INTERRUPTED for finding in about):
        return  # the errors may come from an unfinished change
    mended = {code for each in commands if each.changes for code in each.codes}
    unmended = {finding.code: finding for finding in reversed(about) if finding.code not in mended}
    for code, finding in sorted(unmended.items()):
        if not no_plan or (cure_of(finding) not in MENDS and not refused([finding])):
            yield f"  {code} is beyond repair: {why_unrepairable(code)}"
