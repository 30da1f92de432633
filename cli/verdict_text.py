"""The verdict on a store in the answers of `recover`, `repair` and `inspect`: as JSON, and line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..store.findings.findings import Finding
    from ..store.findings.next_commands import NextCommand
    from ..store.repair.recheck import Beyond
    from ..store.verify.verdict import Verdict


NEXT_IN_USE = "Next: stop the process that uses the store, then run this command again."
"""In place of a command with --apply: it would be refused."""


def next_lines(steps: Sequence[NextCommand]) -> list[str]:
    """The commands to run, in order."""
    return [f"{'Then' if number else 'Next'}: {step}" for number, step in enumerate(steps)]


def by_code(verdict: Verdict) -> dict[str, list[Finding]]:
    """The errors by code, the worst first."""
    found: dict[str, list[Finding]] = {}
    for finding in verdict.serious:
        found.setdefault(finding.code, []).append(finding)
    return found


def verdict_json(verdict: Verdict, root: PathLike[str] | str) -> dict[str, Any]:
    """status, the first sentence, and an object for each code that has errors."""
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
        for code, mine in by_code(verdict).items()
    ]
    sentence = first_sentence(verdict, root)
    return {"status": verdict.status.value, "sentence": sentence, "findings": rows}


def error_lines(verdict: Verdict, root: PathLike[str] | str) -> Iterator[str]:
    """Two lines for each code that has errors: the first place, and what a broker does with it.

    What the next start does as a whole is told elsewhere.
    """
    from ..store.findings.catalogue import catalogue
    from ..store.verify.start import GROUP

    for code, mine in by_code(verdict).items():
        told, first = catalogue()[code], mine[0]
        if told.group == GROUP:
            continue
        others = sum(finding.count for finding in mine) - 1
        more = f" (and {others:,} more)" if others else ""
        yield f"  {code}  {first.place(root)}: {first.message}{more}"
        yield f"         A broker {told.broker}."


def beyond_lines(beyond: Sequence[Beyond]) -> Iterator[str]:
    """What no repair mends, each with its reason and what is left to do."""
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
