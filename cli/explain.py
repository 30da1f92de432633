"""`mqstore explain`: what a finding means, how it comes to be, how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Common, command_app, shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..store.verify.catalogue import Invariant

app = command_app()


@app.command()
@shared()
def explain(
    code: Annotated[str, typer.Argument(metavar="CODE", help="As in a finding, e.g. I-064.")],
    *,
    common: Common,
) -> None:
    """Tell the whole story of a finding of `verify`.

    What must hold, how it comes to be broken, what a broker logs and does with it, what its users
    notice, and the command that mends it.

    \b
    Examples:
      mqstore explain I-064
      mqstore explain i-023 --format json
    """
    from ..store.errors import InvalidInput
    from ..store.verify.catalogue import catalogue

    told = catalogue().get(code.strip().upper())
    if told is None:
        hint = "codes are I-001 to I-171, as `mqstore verify` prints them"
        raise InvalidInput(f"no such code: {code!r}", hint=hint)
    with common.open_output() as out:
        out.record(_json(told), text=_text)


def _json(told: Invariant) -> dict[str, Any]:
    return {
        "type": "explanation",
        "code": told.code,
        "severity": told.severity.label,
        "statement": told.statement,
        "cause": told.cause,
        "log": told.log,
        "broker": told.broker,
        "effect": told.effect,
        "repair": told.repair.format(store="STORE", topic="TOPIC", queue_id="QUEUE"),
        "unchecked": told.unchecked,
        "links": list(told.links),
    }


_PARTS = (
    *(("Cause", "cause"), ("Broker's log", "log"), ("A broker", "broker"), ("Effect", "effect")),
    *(("Next", "repair"), ("Not checked", "unchecked")),
)


def _text(record: Mapping[str, Any]) -> str:
    lines = [f"{record['code']} ({record['severity']}): {record['statement']}", ""]
    lines += [f"{label + ':':14}{record[name]}" for label, name in _PARTS if record[name]]
    lines += [f"{'See:':14}{link}" for link in record["links"]]
    return "\n".join(lines)
