"""`mqstore explain`: the meaning of a code or label that a command prints, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from .declared import Argument, Option
from .options import Common, shared
from .record_types import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..store.findings.catalogue import Invariant
    from ..store.log.message import MarkTexts
    from ..store.recover.broker_bugs import BrokerBug
    from ..store.recover.cases import Case


@shared()
def explain(
    codes: Annotated[
        list[str] | None,
        Argument(
            metavar="[CODE...]",
            help="A finding (I-064), a broker's bug (B19), a case of recover (damage-cuts),"
            " a mark of a record (dead_tail).",
            show_default=False,
        ),
    ] = None,
    list_: Annotated[bool, Option("--list", help="List all codes and labels, one per line.")] = False,
    *,
    common: Common,
) -> None:
    """Explain a code or label that another command prints.

    For a finding: what must hold, how it gets broken, what a broker logs and does, what users notice, and the
    command that repairs it. For a case of recover: what is in the store, what the start of a broker does, and what
    the plan does instead. For a broker's bug: which versions have it, when it strikes, and what it does. For a
    mark: what dump, get and inspect mean by it. JSON is one array, also for one code. What to do about a verdict of
    trace is in docs/guides/why-not-delivered.md.

    \b
    Examples:
      mqstore explain I-064
      mqstore explain damage-cuts B19 dead_tail
      mqstore explain i-023 I-024 --format json
      mqstore explain --list
    """
    from ..store.errors import InvalidInput

    if list_ == bool(codes):
        raise InvalidInput("nothing to explain", hint="name a CODE or label, or use --list")
    records = [record for _, record in everything()] if list_ else [_find(code) for code in codes or ()]
    gap = "" if len(records) == 1 else "\n"
    text = _line if list_ else lambda record: _story(record) + gap
    with common.open_output() as out:
        out.records(records, text=text, columns=_COLUMNS)


_COLUMNS = (
    *("type", "code", "severity", "statement", "cause", "log", "broker", "effect", "repair"),
    *("label", "found", "plan", "keep", "codes", "bugs", "unchecked", "links"),
    *("versions", "trigger", "mends", "shown"),
)


def everything() -> Iterator[tuple[str, dict[str, Any]]]:
    """All codes and labels, as they are typed, with their records."""
    from ..store.findings.catalogue import catalogue
    from ..store.findings.next_commands import command_in_general
    from ..store.log.message import mark_texts
    from ..store.recover.broker_bugs import bugs
    from ..store.recover.cases import CASES

    for code, invariant in catalogue().items():
        severity, repair = invariant.severity.label, command_in_general(code)
        yield code, _record("explanation", invariant, severity=severity, repair=repair)
    for case in CASES:
        yield case.label, _record("recovery_case", case)
    for code, bug in bugs().items():
        yield code, _record("broker_bug", bug)
    for label, mark in mark_texts().items():
        yield label, _record("mark", mark, repair=f"mqstore {mark.next} STORE" if mark.next else "")


def _find(code: str) -> dict[str, Any]:
    """The record of a code or label, in any form that a command prints. Raises InvalidInput."""
    from ..store.errors import InvalidInput, did_you_mean

    known = dict(everything())
    shown = {record["shown"]: name for name, record in known.items() if "shown" in record}
    word = " ".join(code.split())
    for name in (word.upper(), word.lower(), shown.get(word.lower().strip("[]")), f"stale: {word}"):
        if story := known.get(shown.get(name or "", name or "")):
            return story
    from ..store.trace.answer import DeliveryVerdict  # only needed for the hint

    hint = did_you_mean(word, [*known, *shown], "mqstore explain --list has all of them")
    if word.lower().replace(" ", "_") in {*DeliveryVerdict}:
        hint = "docs/guides/why-not-delivered.md explains the verdicts of trace"
    raise InvalidInput(f"no such code or case: {code!r}", hint=hint)


def _record(record_type: str, row: Invariant | Case | BrokerBug | MarkTexts, **more: str) -> dict[str, Any]:
    """The record of a row of a table. more: members that the row lacks, or has in another form."""
    found = {"type": record_type, **row._asdict(), **more}
    return {name: found[name] for name in schema_of(record_type)["properties"]}


_PARTS = (
    ("Versions", "versions"),
    *(("Cause", "cause"), ("Broker's log", "log"), ("A broker", "broker"), ("Effect", "effect")),
    *(("mqstore", "mends"), ("The plan", "keep"), ("--policy broker", "plan"), ("Next", "repair")),
    ("Not checked", "unchecked"),
)
_INDENT = 17
_WIDTH = 100


def _line(record: Mapping[str, Any]) -> str:
    if "label" in record:
        return f"{record['label']:22} {record['found']}"
    if record["type"] == "broker_bug":
        return f"{record['code']:5}  {record['trigger']}"
    return f"{record['code']}  {record['severity']:8}{record['statement']}"


def _story(record: Mapping[str, Any]) -> str:
    if record["type"] == "recovery_case":
        head = f"{record['label']}: {record['found']}."
        if not record["keep"]:  # both policies do the same
            record = {**record, "keep": record["plan"], "plan": ""}
    elif record["type"] == "mark":
        head = f"{record['shown']}: {record['found']}"
    elif record["type"] == "broker_bug":
        head = f"{record['code']}, a bug of brokers: {record['trigger']}"
    else:
        head = f"{record['code']} ({record['severity']}): {record['statement']}"
    lines = [_wrapped(head, 0), ""]
    for label, name in _PARTS:
        if text := record.get(name):
            lines.append(_wrapped(f"{label + ':':{_INDENT}}{text}", _INDENT))
    more = [f"mqstore explain {code}" for code in record.get("codes", ())]
    more += record.get("links", ())
    more += [f"mqstore explain {bug}" for bug in record.get("bugs", ())]
    lines += [f"{'See:':{_INDENT}}{text}" for text in more]
    return "\n".join(lines)


def _wrapped(text: str, indent: int) -> str:
    """Wrap a text to a readable width; commands and addresses are not broken."""
    from textwrap import fill

    more = " " * indent
    return fill(text, _WIDTH, subsequent_indent=more, break_long_words=False, break_on_hyphens=False)
