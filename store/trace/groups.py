"""What config/ says of consumer groups: how far each is, its filter, whether it is served (spec 05).

If a file cannot be read its .bak counts, as for a broker. Older offsets of the .bak are kept beside the newer ones:
they show what moved between two writes. Tables in a RocksDB have no .bak.

A store keeps the SQL92 expressions of groups (config/consumerFilter.json) and hardly ever their tags: the operator has
to give those. A broker compares hashes of tags, a client the tags themselves (spec 2.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from ...formats.config import BACKUP
from ...formats.consumer_offset import GROUP_TOPIC_MAP, steps_to_next
from ...formats.hashing import java_trim, tags_code
from ...formats.json_table import EXPRESSION_TYPE
from ...formats.message_properties import RETRY_PREFIX
from ...formats.message_request_mode import POP
from ..broker.filter import Where
from ..broker.profiles import profile_of
from ..broker.snapshot import QueueId
from ..broker.system_topics import is_system_group
from ..disk.layout import Layout
from ..errors import InvalidInput, Missing, StoreError, Unreadable, Unsupported
from ..log.message import Message
from ..offsets.positions import PULLED, positions_of
from ..queues.filter_bits import SQL92, ConsumerFilter, consumer_filters, read_filters
from ..search.selection import ANY_TAG, TAG_SEPARATOR
from ..search.store import Note
from ..settings.read import FILES, read_config_file
from ..settings.rocksdb import rows_of, stand_ins
from ..start.config_load import FILTERS, GROUPS, OFFSETS, TOPICS, config_rules, request_modes
from .answer import DeliveryVerdict, Evidence, Judgement
from .family import TAGS_CODE_MASK, WRONG_TAG, FoundUnit

_MS_NS = 1_000_000
_ONE_SHUTDOWN_MS = 3 * 60_000
"""Times of files that one shutdown wrote differ by no more than this."""
Row = dict[str, Any]


@dataclass
class GroupTables:
    """The tables; those that cannot be read are empty.

    progress: queue → group → next offset. files: queue → file of config/ with these. before: the same of the .bak.
    pulled: how far a group has fetched, 5.5.
    written_ms: when the offsets were written, None if no file tells. written_beside: another file written at that time,
    "" for none. entries: subscription groups. forbidden: (group, topic). topics: entries of topics, None if no table
    can be read. filters: by topic. reads: group → topics that it has subscribed to. pops: (group, topic) that consume
    by POP. permission: what the broker permits for all topics, None if its configuration does not say.
    """

    progress: dict[QueueId, dict[str, int]] = field(default_factory=dict)
    files: dict[QueueId, str] = field(default_factory=dict)
    before: dict[QueueId, dict[str, int]] = field(default_factory=dict)
    pulled: dict[QueueId, dict[str, int]] = field(default_factory=dict)
    written_ms: int | None = None
    written_beside: str = ""
    entries: dict[str, Row] = field(default_factory=dict)
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    topics: dict[str, Row] | None = None
    filters: dict[str, list[ConsumerFilter]] = field(default_factory=dict)
    reads: dict[str, set[str]] = field(default_factory=dict)
    pops: set[tuple[str, str]] = field(default_factory=set)
    permission: int | None = None

    def of_topic(self, topic: str) -> set[str]:
        """Return the groups that something in config/ connects with a topic."""
        found = {group for group, topics in self.reads.items() if topic in topics}
        found |= {one.group for one in self.filters.get(topic, ())}
        for queue, groups in chain(self.progress.items(), self.before.items()):
            if queue.topic == topic:
                found |= groups.keys()
        return {group for group in found if not is_system_group(group)}

    @property
    def known(self) -> set[str]:
        found = {group for groups in self.progress.values() for group in groups}
        found |= self.entries.keys() | self.reads.keys()
        return {group for group in found if not is_system_group(group)}

    def offset_file(self, queue: QueueId) -> str:
        """Return the file that has the offsets of a queue, or would have them."""
        return f"config/{self.files.get(queue) or next(iter(self.files.values()), OFFSETS)}"

    def filter_of(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return the SQL92 filter that the group was last seen with."""
        return next((one for one in self.filters.get(topic, ()) if one.group == group), None)

    def subscribed(self, topic: str, group: str) -> Row | None:
        """Return what the group's entry says of its subscription to a topic; 5.x, as a rule nothing."""
        rows = self.entries.get(group, {}).get("subscription_data_set")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and row.get("topic") == topic:
                return row
        return None


def read_groups(layout: Layout, version: str, note: Note) -> GroupTables:
    """Read all tables as a broker of this generation does. What cannot be read is noted. Raises Unreadable."""
    found = GroupTables(permission=layout.broker_config.get_int("brokerPermission"))
    _of_positions(layout, version, found, note)
    if OFFSETS not in stand_ins(layout.config, layout.broker_config):
        _of_offsets(layout, found)
    for row in _rows(layout, GROUPS, note) or ():
        if row["type"] == "subscription_group":
            found.entries[row["group"]] = row
        elif row["type"] == "forbidden" and row["forbidden"]:
            found.forbidden.add((row["group"], row["topic"]))
    topics = _rows(layout, TOPICS, note)
    if topics is not None:
        found.topics = {row["topic"]: row for row in topics if row["type"] == "topic_config"}
    modes = request_modes(layout, config_rules(profile_of(version)))
    found.pops = {key for key, mode in modes.items() if mode.upper() == POP}
    try:
        found.filters = consumer_filters(read_filters(layout), None)
    except StoreError as error:
        note(f"{FILTERS}: {error.message}: filters are not known")
    return found


def _of_positions(layout: Layout, version: str, found: GroupTables, note: Note) -> None:
    """Read how far groups are, now and in the .bak."""
    positions = positions_of(layout, version)
    for text in positions.notes:
        note(text)
    for row in positions.rows:
        queue = QueueId(row.topic, row.queue_id)
        if row.table == PULLED:
            found.pulled.setdefault(queue, {})[row.group] = row.offset
        elif row.group:
            found.progress.setdefault(queue, {})[row.group] = row.next_offset
            found.files[queue] = row.file
            if row.backup is not None:
                found.before.setdefault(queue, {})[row.group] = row.backup + steps_to_next(row.group)


def _of_offsets(layout: Layout, found: GroupTables) -> None:
    """Read when the offsets were written, unless two files have them, and what topics groups have read."""
    name, *others = sorted({file.removesuffix(BACKUP) for file in found.files.values()} or {OFFSETS})
    path = layout.config / name
    try:
        main = read_config_file(path, FILES[name])
    except Missing:
        return
    if main.problem is None and not others:
        found.written_ms = path.stat().st_mtime_ns // _MS_NS
        found.written_beside = _written_beside(layout, name, found.written_ms)
    noted = main.value.get(GROUP_TOPIC_MAP)
    for group, topics in noted.items() if isinstance(noted, dict) else ():
        if isinstance(topics, list):
            found.reads[str(group)] = {t for t in topics if isinstance(t, str) and not t.startswith(RETRY_PREFIX)}


def _written_beside(layout: Layout, name: str, written_ms: int) -> str:
    """Return another file than `name` that a broker writes as often, or when it shuts down, and that has the same time;
    "" for none.

    The time of one file alone may be that of a copy, or of a later touch.
    """
    others = [layout.config / other for other in FILES if other != name]
    for path in (layout.checkpoint, *others):
        try:
            other_ms = path.stat().st_mtime_ns // _MS_NS
        except OSError:
            continue
        if abs(other_ms - written_ms) <= _ONE_SHUTDOWN_MS:
            return str(path.relative_to(layout.root))
    return ""


def _rows(layout: Layout, name: str, note: Note) -> list[Row] | None:
    """Return the records of a table, as a broker takes them; None if no table can be read."""
    directory = stand_ins(layout.config, layout.broker_config).get(name)
    if directory is not None:
        try:
            return rows_of(directory, name)
        except (Missing, Unreadable, Unsupported) as error:
            note(f"config/{directory.name}: {error.message}")
            return None
    for path in (layout.config / name, layout.config / (name + BACKUP)):
        try:
            file = read_config_file(path, FILES[name])
        except Missing:
            continue
        if file.problem is None:
            return list(file.records())
        note(f"config/{path.name} cannot be read: {file.problem.reason}")
    return None


TAG = "TAG"


class Subscription(NamedTuple):
    """What a group asks of messages. where: the file, or the option, that says so."""

    kind: str
    expression: str
    where: str


def given(tags: str | None, where: str | None) -> Subscription | None:
    """Return the subscription that the operator gave, or None. Raises InvalidInput if no broker takes it."""
    if tags is not None and where is not None:
        raise InvalidInput("a group subscribes by tags or by an expression, not by both")
    if tags is not None:
        subscribed_tags(tags)
        return Subscription(TAG, tags, "--tags")
    if where is not None:
        try:
            Where(where)
        except InvalidInput as error:
            raise InvalidInput(f"--sql: {error}") from error
        return Subscription(SQL92, where, "--sql")
    return None


def subscribed_tags(expression: str) -> tuple[str, ...] | None:
    """Return the tags that a client makes of its expression, None for all: `*` beside others is a tag of that name.

    Raises InvalidInput where a client throws.

    >>> subscribed_tags("a ||b || *"), subscribed_tags("*")
    (('a', 'b', '*'), None)
    """
    if expression in ("", ANY_TAG):
        return None
    parts = expression.split(TAG_SEPARATOR)
    if not any(parts):
        raise InvalidInput(f"clients do not subscribe to {expression!r}: subString split error")
    return tuple(filter(None, map(java_trim, parts)))


def subscription_of(groups: GroupTables, topic: str, group: str) -> Subscription | None:
    """Return what the store says of a group's subscription, or None."""
    row = groups.subscribed(topic, group)
    if row is not None and isinstance(row.get("expression"), str):
        kind = SQL92 if row.get(EXPRESSION_TYPE) == SQL92 else TAG
        return Subscription(kind, row["expression"], f"config/{GROUPS}")
    found = groups.filter_of(topic, group)
    if found is not None and found.expression:
        return Subscription(SQL92, found.expression, f"config/{FILTERS}")
    return None


def filtered(
    message: Message, unit: FoundUnit | None, groups: GroupTables, group: str, asked: Subscription | None
) -> Judgement | None:
    """Return the verdict if the subscription does not match the message, else None.

    asked: given by the operator; counts before what the store says.
    """
    found = asked or subscription_of(groups, message.topic, group)
    if found is None:
        return None
    if found.kind == TAG:
        return _by_tag(message, unit, found)
    return _by_sql(message, unit, groups, group, found)


def _by_tag(message: Message, unit: FoundUnit | None, found: Subscription) -> Judgement | None:
    """A broker compares the code in the queue unit with the subscription's codes; a client compares the tags."""
    try:
        wanted = subscribed_tags(found.expression)
    except InvalidInput:
        return None
    if wanted is None:
        return None
    tag = message.tags
    code = own = tags_code(tag)
    if unit is not None and unit.other_tag:
        assert unit.tags_code is not None
        code = unit.tags_code
    sent = code & TAGS_CODE_MASK in {tags_code(each) & TAGS_CODE_MASK for each in wanted}
    if sent and tag in wanted:
        return None
    fact = f"the message has the tag {tag!r} (code {own})" if tag else "the message has no tag"
    alone = f": {ANY_TAG} means all tags only with nothing beside it" if ANY_TAG in wanted else ""
    evidence = (
        Evidence(f"the group subscribes to {found.expression!r}{alone}", found.where),
        Evidence(fact, f"commitlog at {message.position}"),
    )
    if tag in wanted:
        by = (
            f"brokers do not send the message: the tags code in its queue unit is not the code of its tag ({WRONG_TAG})"
        )
        return Judgement(DeliveryVerdict.FILTERED, by, evidence, code=WRONG_TAG)
    by = "the group does not subscribe to its tag"
    if tag is not None and sent:
        by = "the client drops the message: only the hash of its tag fits"
    return Judgement(DeliveryVerdict.FILTERED, by, evidence)


def _by_sql(
    message: Message, unit: FoundUnit | None, groups: GroupTables, group: str, found: Subscription
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
        said = "do not show it" if passes else "are not set: no broker reads the message for this group"
        bits = ", ".join(map(str, stored.positions))
        evidence.append(Evidence(f"the bits of the group ({bits}) {said}", "consumequeue_ext"))
    reason = "the SQL92 expression of the group does not match the message"
    return Judgement(DeliveryVerdict.FILTERED, reason, tuple(evidence))
