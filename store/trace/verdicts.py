"""Why a group has a message or not: one verdict of the closed list, with the facts that it rests on.

The questions are asked in the order of their certainty: first what shows that the group was given the message, then
what its offset says, then what may keep the message from it. Without evidence the verdict is `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...formats.config import BACKUP
from ...formats.message_properties import RETRY_PREFIX
from ..broker.snapshot import QueueId
from ..broker.system_topics import LMQ_PREFIX, is_system_group, is_system_topic
from ..counted import counted
from ..disk.layout import KV_STORE
from ..errors import did_you_mean
from ..log.message import Mark, Message
from ..start.config_load import GROUPS, TOPICS
from .answer import DeliveryVerdict, Evidence, Judgement
from .family import WRONG_TAG, Family, FoundUnit, Naming, QueuePlace, RecordRole, role_of
from .groups import GroupTables, Subscription, filtered, subscription_of

if TYPE_CHECKING:
    from ..inspect.pop import Popped

READ = 4
"""The bit of a topic's perm that lets consumers read (spec 05, 5.3)."""
AT_ONCE = 100_000
"""A group reads fewer messages of one queue between two writes of its offsets, 5 s apart."""
_CLOCK_SLACK_MS = 60_000
"""On a slave messages have the master's time, files the slave's own; an archive keeps whole seconds."""
_OF_GROUPS = (RETRY_PREFIX, LMQ_PREFIX)
"""Topics that need no entry in topics.json."""
_AGAIN = (Naming.MADE_AGAIN, Naming.TAKEN)
"""What is at the message's place is another message."""
_HOLES = (Naming.HOLE, Naming.ELSEWHERE, Naming.TAKEN, Naming.OTHER_SIZE)
_KEPT = (Mark.NONE, Mark.AFTER_DAMAGE)
LOST_FACT = "the mark of an earlier recovery"
"""Another recovery brings nothing back, unless a replica has it."""


@dataclass(frozen=True)
class Known:
    """What is known of one message when groups are judged.

    unit: of the judged place. waiting: why the message is not in its topic, or None. gone: why its record cannot be
    read, or None. superseded: why compaction replaced it, or None. pops: group → the times that it was given the
    message, the newest last. settled: the queues are as far as the log, so an offset behind a queue's end is really
    ahead. asked: the subscription that the operator gave. not_read: where more about groups is kept, unread. perhaps:
    what may have been more about those that consume by POP; it says nothing of others. uncommitted: the record is not
    committed by its group.
    """

    family: Family | None
    place: QueuePlace
    groups: GroupTables
    unit: FoundUnit | None = None
    waiting: Judgement | None = None
    gone: Judgement | None = None
    superseded: Judgement | None = None
    pops: Mapping[str, list[Popped]] = field(default_factory=dict)
    settled: bool = False
    asked: Subscription | None = None
    not_read: tuple[Evidence, ...] = ()
    perhaps: tuple[Evidence, ...] = ()
    uncommitted: bool = False

    @property
    def message(self) -> Message | None:
        return self.family.chosen if self.family is not None else None

    def pops_it(self, group: str) -> bool:
        """Whether the group is known to consume the message's topic by POP."""
        topic = self.place.topic if self.family is None else self.family.place.topic
        return group in self.pops or (group, topic) in self.groups.pops

    def more(self, group: str) -> tuple[Evidence, ...]:
        """Return what may have told more about the group, and was not read."""
        return (*self.not_read, *self.perhaps) if self.pops_it(group) else self.not_read


def judge(known: Known, group: str) -> Judgement:
    """Return the verdict on one group."""
    found = (
        _given_back(known, group)
        or _popped(known, group)
        or known.gone
        or _absent(known)
        or _passed(known, group)
        or _unserved(known, group)
        or known.superseded
        or _undispatched(known)
        or _filtered(known, group)
        or _unless_by_tag(known, group, _set_back(known, group) or _waiting(known, group))
    )
    more = known.more(group) if found.verdict in (DeliveryVerdict.PASSED, DeliveryVerdict.UNKNOWN) else ()
    return found.with_evidence(*_offset_facts(known, group), *more)


def for_all(known: Known) -> Judgement | None:
    """Return what keeps a message from every group, or None."""
    found = known.gone or _absent(known) or _unserved(known, "") or known.superseded
    return found or _undispatched(known)


def _given_back(known: Known, group: str) -> Judgement | None:
    """The group had the message and sent it back: a dead letter, a waiting retry, a retry that it can have."""
    family = known.family
    if family is None:
        return None
    dead = [m for owner, m in family.dead_letters if owner == group]
    if dead:
        reason = f"the group gave the message up after {counted(dead[-1].reconsume_times, 'retry', 'retries')}"
        return Judgement(DeliveryVerdict.RETRY, f"a dead letter: {reason}", (_record(dead[-1]),))
    last = awaited(family, group)
    if last is None:
        return None
    its_queue = known.place[:2] == (last.topic, last.queue_id)  # its unit may lie elsewhere there
    missing = known.unit.misses() if known.unit is not None and its_queue else None
    if missing is not None:
        missing = missing.with_evidence(_record(last))
    if role_of(last) is not RecordRole.RETRY:
        times = counted(last.reconsume_times, "time")
        reason = f"the group sent the message back {times}; it gets the message again when the delay ends"
        return missing or Judgement(DeliveryVerdict.RETRY, reason, (_record(last),))
    queue = QueueId(last.topic, last.queue_id)
    reached = known.groups.progress.get(queue, {}).get(group)
    fact = Evidence(f"offset of the group in {queue}: {reached}", known.groups.offset_file(queue))
    evidence = (_record(last), fact)
    given = [(row.topic, row.queue_id, row.queue_offset) for row in known.pops.get(group, ())]
    if (last.topic, last.queue_id, last.queue_offset) in given:  # POP: its offset only says what was given out
        return _popped(known, group)
    if reached is not None and reached > last.queue_offset and not (missing and _is_hole(known)):
        times = counted(sum(owner == group for owner, _ in family.retries), "retry", "retries")
        return _beyond(known, group, f"consumed after {times}: the group's offset is past the last retry", evidence)
    return missing or Judgement(DeliveryVerdict.RETRY, "the message waits in the retry topic of the group", evidence)


def awaited(family: Family, group: str) -> Message | None:
    """Return the record by which a group gets the message again: its last retry, or the last that waits."""
    if any(owner == group for owner, _ in family.dead_letters):
        return None
    there = [m for owner, m in family.retries if owner == group]
    done = {m.reconsume_times for m in there}
    waits = (m for owner, m in family.waiting_retries if owner == group and m.reconsume_times not in done)
    return next(reversed((*there, *waits)), None)


def _is_hole(known: Known) -> bool:
    """Whether the queue continues behind the place without naming the record."""
    return known.unit is not None and known.unit.state in _HOLES


def _popped(known: Known, group: str) -> Judgement | None:
    """The group consumes by POP, and was given the message."""
    times = known.pops.get(group)
    if not times:
        return None
    from ..inspect.pop import STAYS, PopState

    last = times[-1]
    until = last.visible_timestamp
    where = KV_STORE if last.check_point is None else f"commitlog at {last.check_point}"
    evidence = (Evidence("its newest check point", where),)
    again = ""
    if any(each.again for each in times):
        again = "a start gives it again, since the group's position on disk is not past it"
    if last.state is PopState.ACKED:
        reason = "a consumer acknowledged it (POP)"
        if again:
            return Judgement(DeliveryVerdict.WAITING, f"{reason}, but {again}", evidence)
        return Judgement(DeliveryVerdict.PASSED, reason, evidence)
    if last.state is PopState.RETURNED:
        back = Evidence("written again for the group", f"commitlog at {last.returned}")
        reason = "no consumer acknowledged it in time (POP): it is in the retry topic of the group"
        return Judgement(DeliveryVerdict.RETRY, reason, (*evidence, back))
    verdict, code = DeliveryVerdict.UNKNOWN, ""
    reason = f"a consumer got it (POP); whether it was acknowledged is not known: {last.reason}"
    if last.state is PopState.INVISIBLE:
        verdict, reason = DeliveryVerdict.INVISIBLE, "a consumer has it (POP): no other consumer gets it until then"
    elif last.state is PopState.DUE:
        verdict, reason = DeliveryVerdict.INVISIBLE, f"no consumer acknowledged it (POP): {last.reason}"
    elif last.state is PopState.NEVER:
        timed = last.reason.startswith(STAYS)
        verdict, code = (DeliveryVerdict.NEVER_FIRES, "") if timed else (DeliveryVerdict.NEVER_DELIVERED, "I-190")
        reason = f"no consumer acknowledged it (POP), and it is not delivered again: {last.reason}"
    if again and verdict is DeliveryVerdict.INVISIBLE:
        reason = f"{again}; {reason}"
    elif again:
        verdict, reason, code = DeliveryVerdict.WAITING, f"a consumer got it (POP), but {again}", ""
    return Judgement(verdict, reason, evidence, None if code else until, code=code)


def _absent(known: Known) -> Judgement | None:
    """The message is not in its topic, or not in the log that counts."""
    message = known.message
    if message is None:
        if known.waiting is not None:
            return known.waiting
        reason = "the log has no record of it in its topic; the reason is not known"
        return Judgement(DeliveryVerdict.UNKNOWN, reason)
    if message.stand_in:
        reason = f"lost: recover wrote a {message.stand_in} in its place"
        return Judgement(DeliveryVerdict.UNREADABLE, reason, (Evidence(LOST_FACT, _record(message).where),))
    if message.mark not in _KEPT:
        words = message.mark.name.lower().replace("_", " ")
        reason = f"its record no longer belongs to this log ({words})"
        return Judgement(DeliveryVerdict.GONE, reason, (_record(message),))
    return None


def _reached(known: Known, group: str) -> tuple[int | None, int | None]:
    """Return the next offset of the group in the queue, and the one in the .bak file."""
    topic, queue_id, _ = known.place
    if queue_id is None:
        return None, None
    queue = QueueId(topic, queue_id)
    before = known.groups.before.get(queue, {}).get(group)
    return known.groups.progress.get(queue, {}).get(group), before


def _passed(known: Known, group: str) -> Judgement | None:
    """The group's offset is past the message."""
    reached, before = _reached(known, group)
    offset = known.place.queue_offset
    if reached is None or offset is None or reached <= offset:
        return None
    if known.unit is not None and known.unit.state in _AGAIN:
        return None  # the offset is past another message
    if (found := _filtered(known, group)) is not None:
        return found
    if (jumped := _jumped(known, reached)) is not None:
        return jumped
    if known.unit is not None and _is_hole(known):
        reason = f"{known.unit.lack}, and the group's offset is past its place"
        return Judgement(DeliveryVerdict.NOT_DISPATCHED, reason, (known.unit.evidence,))
    doubt, evidence = _doubt(known, reached, before, offset)
    past = _beyond(known, group, f"the group's offset is past the message{doubt}", evidence)
    return _unless_by_tag(known, group, past)


def _beyond(known: Known, group: str, reason: str, evidence: tuple[Evidence, ...]) -> Judgement:
    """The group's offset is past it. For POP this shows that a consumer was given it, not what became of it."""
    if known.pops_it(group) and known.more(group):
        reason = "a consumer got it (POP); what is left of this store does not tell whether it was acknowledged"
        return Judgement(DeliveryVerdict.UNKNOWN, reason, evidence)
    return Judgement(DeliveryVerdict.PASSED, reason, evidence)


def _filtered(known: Known, group: str) -> Judgement | None:
    """The group's subscription does not match the message."""
    if known.message is None:
        return None
    return filtered(known.message, known.unit, known.groups, group, known.asked)


def _set_back(known: Known, group: str) -> Judgement | None:
    """The group's offset was past the message at the previous write of the offsets."""
    reached, before = _reached(known, group)
    offset = known.place.queue_offset
    if reached is None or offset is None or before is None or before <= offset:
        return None
    reason = f"the offset was set back from {before} to {reached}: the group gets the message again"
    return Judgement(DeliveryVerdict.OFFSET_MOVED, reason)


def _jumped(known: Known, reached: int) -> Judgement | None:
    """The offset was moved past the message, not read past it, and more than one file shows that."""
    unit, beside = known.unit, known.groups.written_beside
    if (early := _written_before(known)) and beside:
        reason = "the group's offset was past this place before the message was stored: the group skips the message"
        evidence = (early, Evidence("written within minutes of the offset file", beside))
        return Judgement(DeliveryVerdict.OFFSET_MOVED, reason, evidence)
    if unit is not None and unit.state is Naming.NAMES and known.settled and reached > unit.max_offset:
        reason = f"the group's offset {reached} is past the end of the queue, {unit.max_offset}"
        return Judgement(DeliveryVerdict.OFFSET_MOVED, reason)
    return None


def _written_before(known: Known) -> Evidence | None:
    """Return evidence that the offsets were written before the message, by the time of their file alone."""
    message, written_ms = known.message, known.groups.written_ms
    if message is None or written_ms is None:
        return None
    if message.store_timestamp <= written_ms + _CLOCK_SLACK_MS:
        return None
    # np.datetime64 takes any number
    file, stored = (f"{np.datetime64(time, 'ms')}+00:00" for time in (written_ms, message.store_timestamp))
    where = known.groups.offset_file(QueueId(message.topic, message.queue_id))
    return Evidence(f"the file was written at {file}, the message at {stored}", where)


def _doubt(known: Known, reached: int, before: int | None, offset: int) -> tuple[str, tuple[Evidence, ...]]:
    """Return what makes it doubtful, but does not disprove, that the group read the message; "" for nothing."""
    if early := _written_before(known):
        doubt = "the offset file is older than the message, but no other file confirms that time"
        return f"; perhaps skipped: {doubt}", (early,)
    if before is not None and before <= offset and reached - before > AT_ONCE:
        moved = counted(reached - before, "message", form=",")
        return f"; perhaps skipped, as by a reset: the offset moved by {moved} between two writes", ()
    if known.unit is not None and known.unit.hidden_by is not None:
        return f"; perhaps skipped: {known.unit.hides}", ()
    message = known.message
    if message is not None and (message.topic, message.queue_id) == known.place[:2] and offset < message.queue_offset:
        return f"; perhaps skipped: its unit lies in front of its queue offset {message.queue_offset}", ()
    return "", ()


def _unserved(known: Known, group: str) -> Judgement | None:
    """The topic or its queue is not served, or not to this group (spec 05, 5.3)."""
    topic, queue_id, _ = known.place
    groups = known.groups
    if groups.permission is not None and not groups.permission & READ:
        fact = f"brokerPermission is {groups.permission}"
        return _not_served("nobody may read from the broker", fact, "broker configuration")
    entry = groups.entries.get(group)
    if entry is not None and entry.get("consume_enable") is False:
        return _not_served("the group may not consume", "consumeEnable is false", f"config/{GROUPS}")
    if (group, topic) in groups.forbidden:
        fact = "the group is forbidden to read the topic"
        return _not_served("the group may not consume the topic", fact, f"config/{GROUPS}")
    if groups.topics is None or is_system_topic(topic) or topic.startswith(_OF_GROUPS):
        return None
    found = groups.topics.get(topic)
    if found is None:
        return _not_served("the broker does not know the topic", f"no entry for {topic}", f"config/{TOPICS}")
    perm, queues = found.get("perm"), found.get("read_queue_nums")
    if isinstance(perm, int) and not perm & READ:
        return _not_served("nobody may read the topic", f"perm is {perm}", f"config/{TOPICS}")
    if isinstance(queues, int) and queue_id is not None and queue_id >= queues:
        return _not_served(f"consumers do not see queue {queue_id}", f"readQueueNums is {queues}", f"config/{TOPICS}")
    return None


def _not_served(reason: str, fact: str, where: str) -> Judgement:
    return Judgement(DeliveryVerdict.NOT_SERVED, reason, (Evidence(fact, where),))


def _undispatched(known: Known) -> Judgement | None:
    """No unit of the queue leads to the record."""
    found = None if known.unit is None else known.unit.misses()
    if found is None or not known.uncommitted:
        return found
    told = "the group has not committed the record, as far as the store tells, and may replace it"
    return found._replace(reason=f"{found.reason}; {told}")


def _waiting(known: Known, group: str) -> Judgement:
    """The group has not come to the message yet, as far as the store tells."""
    reached, _ = _reached(known, group)
    offset = known.place.queue_offset
    if reached is None or offset is None:
        names = known.groups.known
        if names and group not in names and not is_system_group(group):
            more = did_you_mean(group, names, "the group has no offset in this queue")
            return Judgement(DeliveryVerdict.UNKNOWN, f"config/ names no such group; {more}")
        reason = (
            "the group has no offset in this queue: it never consumed here, or by broadcast, or"
            " keeps its offset elsewhere"
        )
        return Judgement(DeliveryVerdict.UNKNOWN, reason)
    lag = ""
    if known.unit is not None and known.unit.max_offset > reached:
        lag = f", {counted(known.unit.max_offset - reached, 'message', form=',')} behind the end"
    if known.unit is not None and known.unit.hidden_by is not None and reached <= known.unit.hidden_by:
        return Judgement(DeliveryVerdict.NOT_DISPATCHED, f"{known.unit.hides}, and the group has not read so far")
    if offset == reached:
        return Judgement(DeliveryVerdict.WAITING, f"the message is the next one that the group reads{lag}")
    before = counted(offset - reached, "message", form=",")
    return Judgement(DeliveryVerdict.WAITING, f"the group has {before} to read before this one{lag}")


def _unless_by_tag(known: Known, group: str, found: Judgement) -> Judgement:
    """Add a doubt if the unit has a wrong tags code, and nothing tells what the group subscribes to."""
    if known.unit is None or not known.unit.other_tag:
        return found
    if known.asked is not None or subscription_of(known.groups, known.place.topic, group) is not None:
        return found  # `filtered` has judged by it
    doubt = "a group that subscribes by tags may not get the message: its queue unit has a wrong tags code"
    return found._replace(reason=f"{found.reason}; {doubt} ({WRONG_TAG})", code=WRONG_TAG)


def _offset_facts(known: Known, group: str) -> list[Evidence]:
    """Return the offsets, and the unit, whatever the verdict is."""
    found = []
    topic, queue_id, offset = known.place
    reached, before = _reached(known, group)
    if queue_id is not None and known.message is not None:
        queue, known_offset = QueueId(topic, queue_id), "none" if reached is None else reached
        file = known.groups.offset_file(queue)
        found.append(Evidence(f"offset of the group in {queue}: {known_offset}", file))
        pulled = known.groups.pulled.get(queue, {}).get(group)
        if pulled is not None and pulled != reached:
            found.append(Evidence(f"the group has pulled up to {pulled}", file))
        if before is not None and before != reached:
            text = f"the previous write of the offset was {before}"
            crossed = None not in (reached, offset) and before <= offset < reached  # type: ignore[operator]
            if crossed:
                text += ": the offset passed the message between these two writes"
            found.append(Evidence(text, f"{file}{BACKUP}"))
    if known.unit is not None:
        found.append(known.unit.evidence)
    return found


def _record(message: Message) -> Evidence:
    place = f"{message.topic}/{message.queue_id}/{message.queue_offset}"
    return Evidence(f"record {place}", f"commitlog at {message.position}")
