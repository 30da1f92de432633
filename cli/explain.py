"""`mqstore explain`: what a finding or a recovery case means, how it comes to be, how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Common, command_app, shared

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..store.recovery.cases import Case
    from ..store.verify.catalogue import Invariant

app = command_app()


@app.command()
@shared()
def explain(
    codes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CODE...]",
            help="As in a finding, e.g. I-064, or a case of recover, e.g. damage-cuts.",
            show_default=False,
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="All codes and cases, a line for each.")
    ] = False,
    *,
    common: Common,
) -> None:
    """Tell the whole story of a finding of `verify`, or of a case of `recover`.

    Of a finding: what must hold, how it comes to be broken, what a broker logs and does with it,
    what its users notice, and the command that mends it. Of a case: what is there, what the start
    of a broker does, and what the plan does in its place.

    \b
    Examples:
      mqstore explain I-064
      mqstore explain damage-cuts
      mqstore explain i-023 I-024 --format json
      mqstore explain --list
    """
    from ..store.errors import InvalidInput

    if list_ == bool(codes):
        raise InvalidInput("explain what?", hint="give a CODE or a case, or --list")
    records = list(_everything() if list_ else map(_find, codes or ()))
    with common.open_output() as out:
        if len(records) == 1:
            out.record(records[0], text=_story, columns=_COLUMNS)
        else:
            out.records(records, text=_line if list_ else _story_and_gap, columns=_COLUMNS)


_COLUMNS = (
    *("type", "code", "severity", "statement", "cause", "log", "broker", "effect", "repair"),
    *("label", "found", "plan", "keep", "codes", "bugs", "unchecked", "links"),
)


def _everything() -> Iterator[dict[str, Any]]:
    from ..store.recovery.cases import CASES
    from ..store.verify.catalogue import catalogue

    yield from map(_of_invariant, catalogue().values())
    yield from map(_of_case, CASES)


def _find(code: str) -> dict[str, Any]:
    from ..store.verify.catalogue import catalogue

    known = catalogue()
    if told := known.get(code.strip().upper()):
        return _of_invariant(told)
    return _case(code, list(known))


def _case(label: str, codes: list[str]) -> dict[str, Any]:
    from difflib import get_close_matches

    from ..store.errors import InvalidInput
    from ..store.recovery.cases import CASES

    cases = {case.label: case for case in CASES}
    if case := cases.get(label.strip().lower()):
        return _of_case(case)
    near = get_close_matches(label.strip()[:64], [*cases, *codes], n=1)
    hint = f"did you mean {near[0]}?" if near else "mqstore explain --list has all of them"
    raise InvalidInput(f"no such code or case: {label!r}", hint=hint)


def _of_invariant(told: Invariant) -> dict[str, Any]:
    from ..store.next_commands import command_in_general

    return {
        "type": "explanation",
        "code": told.code,
        "severity": told.severity.label,
        "statement": told.statement,
        "cause": told.cause,
        "log": told.log,
        "broker": told.broker,
        "effect": told.effect,
        "repair": command_in_general(told.code),
        "unchecked": told.unchecked,
        "links": list(told.links),
    }


def _of_case(case: Case) -> dict[str, Any]:
    return {
        "type": "recovery_case",
        "label": case.label,
        "found": case.found,
        "broker": case.broker,
        "plan": case.plan,
        "keep": case.keep,
        "codes": list(case.codes),
        "bugs": list(case.bugs),
    }


_PARTS = (
    *(("Cause", "cause"), ("Broker's log", "log"), ("A broker", "broker"), ("Effect", "effect")),
    *(("The plan", "keep"), ("--policy broker", "plan"), ("Next", "repair")),
    *(("Not checked", "unchecked"),),
)
_INDENT = 17
_WIDTH = 100


def _line(record: Mapping[str, Any]) -> str:
    if record["type"] == "recovery_case":
        return f"{record['label']:22} {record['found']}"
    return f"{record['code']}  {record['severity']:8}{record['statement']}"


def _story(record: Mapping[str, Any]) -> str:
    if record["type"] == "recovery_case":
        lines = [_wrapped(f"{record['label']}: {record['found']}.", 0), ""]
        if not record["keep"]:  # the same under both policies
            record = {**record, "keep": record["plan"], "plan": ""}
    else:
        head = f"{record['code']} ({record['severity']}): {record['statement']}"
        lines = [_wrapped(head, 0), ""]
    for label, name in _PARTS:
        if text := record.get(name):
            lines.append(_wrapped(f"{label + ':':{_INDENT}}{text}", _INDENT))
    more = [f"mqstore explain {code}" for code in record.get("codes", ())]
    more += record.get("links", ())
    if record.get("bugs"):
        more.append(f"broker bug {', '.join(record['bugs'])}")
    lines += [f"{'See:':{_INDENT}}{text}" for text in more]
    return "\n".join(lines)


def _story_and_gap(record: Mapping[str, Any]) -> str:
    return _story(record) + "\n"


def _wrapped(text: str, indent: int) -> str:
    """Lines of a width that people read; commands and addresses are not broken."""
    from textwrap import fill

    more = " " * indent
    return fill(
        text, _WIDTH, subsequent_indent=more, break_long_words=False, break_on_hyphens=False
    )
