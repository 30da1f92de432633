"""Log to queue: each message has its unit, at its queue offset, with its tag (I-065, I-070).

Messages of a queue come in log order; the units at their offsets are read beside them and compared
as columns. What is not where it belongs is looked for where its neighbours are: a queue that a
broker has shifted (spec 7.12, B1) is shifted by the same number for long stretches.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import EXT_ADDRESS_MAX, UNIT_BYTES
from ..audit.messages import Messages, points_at
from ..broker.delay_level import SCHEDULE_TOPIC
from ..findings.catalogue import Severity
from ..queues.units import Units, is_pre_fill, is_valid
from ..settings.options import options_of
from .context import Scene
from .queue_batches import compare_batches
from .queue_ext import compare_entries
from .queue_reader import QueueReader
from .queue_state import QueueCheck, Queues, queues_of
from .register import of_messages

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_FARTHEST = np.iinfo(np.int64).max // 2
_SAMPLES = 8
"""Messages that are searched for, of one lot which are not where they belong."""


@of_messages("I-065", "I-080", "I-082")
def units_of_messages(scene: Scene, messages: Messages) -> None:
    """Each message has its unit at its queue offset, with the tag that its record asks for."""
    queues = queues_of(scene)
    if scene.scope.quick or queues.unreadable or not queues.wanted(messages.queue):
        return
    if queues.is_batch(messages.queue):
        compare_batches(scene, queues, messages)
        return
    check = queues.check(messages.queue)
    if not check.reader.exists:
        check.note_missing(messages)
        return
    units = check.reader.lookup(messages.offset)
    right = points_at(units, messages)
    if right.all():
        _found(scene, check, messages)
        _compare_tags(scene, check, messages, units)
        return
    unread = check.reader.unread(messages.offset) & ~right
    if unread.any():  # nobody can tell
        check.right.add_any(messages.offset[unread])
        units, messages, right = units[~unread], messages.take(~unread), right[~unread]
    there = messages.take(right)
    _found(scene, check, there)
    _compare_tags(scene, check, there, units[right])
    _look_elsewhere(scene, queues, check, messages.take(~right))


def _found(scene: Scene, check: QueueCheck, messages: Messages) -> None:
    """These messages have their units."""
    if not len(messages.offset):
        return
    check.right.add_any(messages.offset)
    reach = int(messages.position[-1]) + int(messages.size[-1])
    scene.log.dispatched = max(scene.log.dispatched, reach)


def _compare_tags(scene: Scene, check: QueueCheck, messages: Messages, units: Units) -> None:
    """The units, those of the messages, carry the right codes."""
    codes = units["tags_code"]
    wrong = codes != messages.tags_code
    wrong &= ~messages.lost
    if not wrong.any():
        return
    rows = np.flatnonzero(wrong)
    addresses = codes[rows] <= EXT_ADDRESS_MAX
    if addresses.any():
        compare_entries(scene, check, messages.take(rows[addresses]), codes[rows[addresses]])
        rows = rows[~addresses]
    if check.queue.topic == SCHEDULE_TOPIC:
        rows = check.waits.wrong(messages, codes.astype(np.int64), rows)
    rows = rows[np.argsort(messages.offset[rows], kind="stable")]
    offsets = messages.offset[rows]
    check.reader.report(
        scene.findings,
        "I-065",
        offsets,
        lambda row: _told(
            check,
            offsets[row],
            codes[rows[row]],
            messages.position[rows[row]],
            messages.tags_code[rows[row]],
        ),
    )


def report_waits(scene: Scene, check: QueueCheck) -> None:
    """Messages that wait as no level and no other message does. The log has been read.

    Where nobody says what the levels are, such a message may have one of its own.
    """
    guess = not options_of(scene.store.layout).delay_levels.is_given
    why = "; messageDelayLevel may have such a level (--set messageDelayLevel=…)" if guess else ""
    more = {"severity": Severity.WARNING} if guess else {}
    alone = sorted(check.waits.alone.values(), key=lambda message: message.offset)
    offsets = np.array([message.offset for message in alone], np.int64)
    check.reader.report(
        scene.findings,
        "I-065",
        offsets,
        lambda row: (
            _told(check, alone[row].offset, alone[row].code, alone[row].position, alone[row].asked)
            + why
        ),
        **more,
    )


def _told(check: QueueCheck, offset: int, code: int, position: int, asked: int) -> str:
    return (
        f"{check.queue} unit {offset}: tags code {code}, the record at {position} asks for {asked}"
    )


def _look_elsewhere(scene: Scene, queues: Queues, check: QueueCheck, messages: Messages) -> None:
    """Find units of messages at other queue offsets; what is in none is missing."""
    found = _at_distance(scene, queues, check, messages, check.shift)
    messages = messages.take(~found)
    samples = np.linspace(0, max(0, len(messages.offset) - 1), _SAMPLES).astype(np.int64)
    distances: set[int] = set()
    for row in np.unique(samples).tolist() if len(messages.offset) else ():
        at = _find(check.reader, int(messages.position[row]))
        if at is not None:
            distances.add(at - int(messages.offset[row]))
    # a damaged record may say any number: what lies farther than numbers reach is no shift
    near = {distance for distance in distances if abs(distance) <= _FARTHEST}
    for distance in near - {check.shift}:
        found = _at_distance(scene, queues, check, messages, distance)
        if found.any():
            check.shift = distance
            messages = messages.take(~found)
    check.note_missing(messages)


def _find(reader: QueueReader, position: int) -> int | None:
    """Queue offset of the unit that names a position of the log, given that units rise."""
    low, end = reader.first_offset, reader.files.end // UNIT_BYTES
    high = end
    while low < high:
        middle = (low + high) // 2
        unit = reader.lookup(np.array([middle], np.int64))
        if is_valid(unit)[0] and (is_pre_fill(unit)[0] or unit["physical_offset"][0] < position):
            low = middle + 1
        else:
            high = middle
    unit = reader.lookup(np.array([low], np.int64))
    return low if low < end and unit["physical_offset"][0] == position else None


def _at_distance(
    scene: Scene, queues: Queues, check: QueueCheck, messages: Messages, distance: int
) -> Flags:
    """bool[n]: messages whose unit lies `distance` behind its place. They are reported."""
    if not distance:
        return np.zeros(len(messages.offset), np.bool_)
    places = messages.offset + distance
    found = points_at(check.reader.lookup(places), messages)
    if not found.any():
        return found
    there = messages.take(found)
    order = np.argsort(places[found], kind="stable")
    offsets, wanted = places[found][order], there.offset[order]
    check.elsewhere.add(offsets)
    reach = int((there.position + there.size).max())
    scene.log.dispatched = max(scene.log.dispatched, reach)
    check.reader.report(
        scene.findings,
        "I-064",
        offsets,
        lambda row: (
            f"{check.queue} unit {offsets[row]} is that of message {wanted[row]}:"
            f" shifted by {offsets[row] - wanted[row]}"
        ),
    )
    return found
