"""The verdict on a store in the answers of `recover`, `repair` and `inspect`: as JSON, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..store.findings.findings import Finding
    from ..store.findings.next_commands import NextCommand
    from ..store.repair.recheck import Unrepairable
    from ..store.verify.verdict import Verdict


NEXT_IN_USE = "Next: stop the process that uses the store, then run this command again."
"""Shown instead of a command with --apply, which would be refused."""


def next_lines(steps: Sequence[NextCommand]) -> list[str]:
    return [f"{'Then' if number else 'Next'}: {step}" for number, step in enumerate(steps)]


def cut_text(cut: NextCommand) -> str:
    """What the command does that ends the log of one of several DLedger nodes, and why it is first (`better_cut`)."""
    sent = f"`{cut}` ends the log before the damage: the leader sends again what follows, if it still has it."
    return f"{sent} With tombstones instead, this log would differ from those of the other nodes for ever."


def alone_text(kept: NextCommand) -> str:
    """When the plan that keeps the log behind the damage is the better one."""
    return f"Or, if no other node has what follows the damage: {kept}"


def by_code(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings by code, in the order of the first one of each code."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(finding.code, []).append(finding)
    return found


def verdict_json(verdict: Verdict, root: PathLike[str] | str) -> dict[str, Any]:
    """Status, first sentence, and an object for each code that has errors."""
    from ..store.findings.catalogue import catalogue
    from ..store.verify.verdict import first_sentence

    rows = [
        {
            "code": code,
            "severity": mine[0].severity.label,
            "count": sum(finding.count for finding in mine),
            "path": mine[0].path,
            "offset": mine[0].offset,
            "message": mine[0].message,
            "broker": catalogue()[code].broker,
        }
        for code, mine in by_code(verdict.serious).items()
    ]
    sentence = first_sentence(verdict, root)
    return {"status": verdict.status.value, "sentence": sentence, "findings": rows}


def started_text(verdict: Verdict, root: PathLike[str] | str) -> str:
    """Whether a broker can be started on a store after a change, or what is still wrong with it."""
    from ..store.verify.verdict import Status, but_unserved, first_sentence, starts_last

    if verdict.status is Status.CLEAN:
        return f"A broker can be started{but_unserved(verdict)}."
    if starts_last(verdict):
        return f"{first_sentence(verdict, root)}."
    return f"But: {first_sentence(verdict, root)}."


def error_lines(verdict: Verdict, root: PathLike[str] | str) -> Iterator[str]:
    """Two lines for each code that has errors: the first place, and what a broker does with the error.

    Without the findings about the next start, which have their own part of the page.
    """
    from ..store.findings.catalogue import catalogue
    from ..store.verify.start import GROUP

    for code, mine in by_code(verdict.serious).items():
        invariant, first = catalogue()[code], mine[0]
        if invariant.group == GROUP:
            continue
        others = sum(finding.count for finding in mine) - 1
        more = f" (and {others:,} more)" if others else ""
        yield f"  {code}  {first.place(root)}: {first.message}{more}"
        yield f"         A broker {invariant.broker}."


def beyond_lines(beyond: Sequence[Unrepairable]) -> Iterator[str]:
    """Lines about what no repair mends, with the reason and what to do."""
    if not beyond:
        return
    yield ""
    yield "Beyond repair:"
    for row in beyond:
        more = f" ({row.findings:,} times)" if row.findings > 1 else ""
        yield f"  {row.code}  {row.path}: {row.message}{more}"
        yield f"         {row.why}"
        yield f"         what to do: {row.now}"
        if row.command:
            yield f"         {row.command}{f'  # {row.does}' if row.does else ''}"
