"""Whether a group's subscription lets a message through: tags, SQL92, the bits of consumequeue_ext.

A store keeps the SQL92 expressions of groups (config/consumerFilter.json) and hardly ever their tags:
those have to be given. A broker compares hashes of tags, a client the tags themselves (spec 2.3).
"""

from __future__ import annotations

from typing import NamedTuple

from ...formats.hashing import tags_code
from ..broker.filter import Where
from ..errors import InvalidInput
from ..log.message import Message
from ..queues.filter_bits import SQL92
from ..search.selection import Selection
from .answer import Evidence, Judgement, Verdict
from .groups import FILTERS, GROUPS, Groups
from .named import Named

TAG = "TAG"


class Subscription(NamedTuple):
    """What a group asks of messages. where: the file that says so, or the option."""

    kind: str
    expression: str
    where: str


def given(tags: str | None, where: str | None) -> Subscription | None:
    """A subscription as the operator knows it. Raises InvalidInput where no broker takes it."""
    if tags is not None and where is not None:
        raise InvalidInput("a group subscribes by tags or by an expression, not by both")
    if tags is not None:
        return Subscription(TAG, tags, "--tags")
    if where is not None:
        try:
            Where(where)
        except InvalidInput as error:
            raise InvalidInput(f"--sql: {error}") from error
        return Subscription(SQL92, where, "--sql")
    return None


def subscription_of(groups: Groups, topic: str, group: str) -> Subscription | None:
    """What the store says of it; None where it says nothing."""
    row = groups.subscribed(topic, group)
    if row is not None and isinstance(row.get("expression"), str):
        kind = SQL92 if row.get("expressionType") == SQL92 else TAG
        return Subscription(kind, row["expression"], f"config/{GROUPS}")
    found = groups.filter_of(topic, group)
    if found is not None and found.expression:
        return Subscription(SQL92, found.expression, f"config/{FILTERS}")
    return None


def filtered(
    message: Message, unit: Named | None, groups: Groups, group: str, asked: Subscription | None
) -> Judgement | None:
    """The verdict where the subscription does not let the message through, else None.

    asked: given by the operator; it counts before what the store says.
    """
    found = asked or subscription_of(groups, message.topic, group)
    if found is None:
        return None
    if found.kind == TAG:
        return _by_tag(message, found)
    return _by_sql(message, unit, groups, group, found)


def _by_tag(message: Message, found: Subscription) -> Judgement | None:
    wanted = Selection(tag=found.expression).tags
    tag = message.tags
    if not wanted or tag in wanted:
        return None
    code = tags_code(tag or "")
    fact = f"the message has the tag {tag!r} (code {code})" if tag else "the message has no tag"
    evidence = (
        Evidence(f"the group subscribes to {found.expression!r}", found.where),
        Evidence(fact, f"commitlog at {message.position}"),
    )
    same = tag is not None and code in map(tags_code, wanted)
    by = "the client drops it: only the hash of its tag fits" if same else "its tag is not wanted"
    return Judgement(Verdict.FILTERED, by, evidence)


def _by_sql(
    message: Message, unit: Named | None, groups: Groups, group: str, found: Subscription
) -> Judgement | None:
    try:
        where = Where(found.expression)
    except InvalidInput:
        return None
    if where.matches(message.properties):
        return None
    names = ", ".join(f"{k}={v}" for k, v in message.properties.items() if k in found.expression)
    evidence = [
        Evidence(f"the group subscribes to {found.expression!r}", found.where),
        Evidence(
            f"the message has {names}" if names else "the message has none of these properties",
            f"commitlog at {message.position}",
        ),
    ]
    stored = groups.filter_of(message.topic, group)
    if unit is not None and unit.ext is not None and stored is not None and unit.ext.bit_map:
        passes = stored.may_pass(unit.ext.bit_map, message.store_timestamp)
        said = "do not tell" if passes else "are not set: no broker reads the message for it"
        bits = ", ".join(map(str, stored.positions))
        evidence.append(Evidence(f"the bits of the group ({bits}) {said}", "consumequeue_ext"))
    reason = "the SQL92 expression of the group does not let it through"
    return Judgement(Verdict.FILTERED, reason, tuple(evidence))
