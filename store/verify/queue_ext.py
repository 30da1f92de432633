"""consumequeue_ext: its units (I-079), and what the units of a queue address there (I-080)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue_ext import ADDRESS_BASE, HEAD, UNIT_BYTES_MIN
from ...formats.derive import dtype_of
from ..audit.messages import Messages
from ..broker.delay_level import SCHEDULE_TOPIC
from ..broker.snapshot import QueueId
from ..disk.byte_reader import noted_of
from ..disk.file_queue import MappedFileQueue
from ..disk.queue_directories import QueueDirectory, queue_directories
from ..findings.catalogue import Severity
from ..queues.read_ext import ExtRange, ext_units, ext_units_at
from ..settings.options import options_of
from .context import Scene
from .register import after

if TYPE_CHECKING:
    from .queue_state import QueueCheck

Ints = npt.NDArray[np.int64]
_HEAD = dtype_of(HEAD)
_SECOND_MS = 1000


@after("I-079")
def ext_files(scene: Scene) -> None:
    """Units follow one another from the front of each file to its end mark, or to its zeros."""
    for directory in queue_directories(scene.store.layout.consume_queue_ext):
        if scene.scope.topic not in (None, directory.topic):
            continue
        if scene.scope.queue_id not in (None, directory.queue_id):
            continue
        with MappedFileQueue.open(directory.path) as files:
            _check_units(scene, directory, files)


def _check_units(scene: Scene, directory: QueueDirectory, files: MappedFileQueue) -> None:
    for part in ext_units(files):
        if not isinstance(part, ExtRange) or part.kind != "damage":
            continue
        file = files.file_at(part.position)
        head = np.frombuffer(files.read(part.position, UNIT_BYTES_MIN), np.uint8)
        if file is None:
            continue
        offset = part.position - file.start
        size = (
            int(head[: _HEAD.itemsize].view(_HEAD)["size"][0]) if len(head) >= _HEAD.itemsize else 0
        )
        text = f"{directory.topic}/{directory.queue_id}: no unit of consumequeue_ext begins here"
        severity = Severity.WARNING
        if size > file.size - offset:
            text += f", its size {size} leads beyond the file: 4.9.7 and 5.3.3 do not start (B37)"
            severity = Severity.FATAL
        scene.findings.add(
            "I-079",
            file.path,
            text,
            offset=offset,
            length=part.size,
            severity=severity,
            topic=directory.topic,
            queue_id=directory.queue_id,
        )


def compare_entries(scene: Scene, check: QueueCheck, messages: Messages, codes: Ints) -> None:
    """Units of these messages have addresses (codes) instead of tags: what stands there is theirs."""
    queue = check.queue
    root = scene.store.layout.consume_queue_ext
    path = os.fspath(root / queue.topic / str(queue.queue_id))
    opened = scene.kept("ext files", dict[QueueId, MappedFileQueue])
    if queue not in opened:
        opened[queue] = MappedFileQueue.open(path)
    files = opened[queue]
    positions = codes.astype(np.int64) - np.int64(ADDRESS_BASE)
    found = ext_units_at(files, positions)
    files.close()
    rows, texts, guessed = [], [], []
    option = options_of(scene.store.layout).delay_levels
    levels_guessed = queue.topic == SCHEDULE_TOPIC and not option.is_given
    wanted = zip(
        positions.tolist(),
        messages.tags_code.tolist(),
        messages.store_timestamp.tolist(),
        strict=True,
    )
    gone = [noted for file in files.files for noted in noted_of(file.path)]
    for row, (position, tags_code, stored_ms) in enumerate(wanted):
        unit, guess = found.get(position), False
        if unit is None and gone:
            continue  # nobody knows what stands there
        if unit is None:
            text = "no unit begins there" if files.files else "consumequeue_ext of it is missing"
        elif unit.tags_code != tags_code:
            text = f"tags code {unit.tags_code} stands there, not {tags_code}"
            wait_ms = unit.tags_code - stored_ms
            guess = levels_guessed and wait_ms > 0 and wait_ms % _SECOND_MS == 0
            text += (
                f"; {option.name} may have such a level (--set {option.name}=…)" if guess else ""
            )
        elif unit.msg_store_time != stored_ms:
            text = f"the time {unit.msg_store_time} stands there, not {stored_ms}"
        else:
            continue
        rows.append(row)
        guessed.append(guess)
        texts.append(f"{queue} unit {messages.offset[row]} has ext address {position}: {text}")
    for guess, severity in ((False, None), (True, Severity.WARNING)):
        mine = np.flatnonzero(np.array(guessed, np.bool_) == guess)
        offsets = messages.offset[np.array(rows, np.int64)[mine]]
        order = mine[np.argsort(offsets, kind="stable")]
        check.reader.report(
            scene.findings,
            "I-080",
            np.sort(offsets),
            lambda row, order=order: texts[int(order[row])],  # type: ignore[misc]
            severity=severity,
        )
