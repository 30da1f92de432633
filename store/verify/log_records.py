"""What the fixed fields of a record say, each for itself (docs/invariants.md, I-023 … I-030, I-032 … I-034)."""

from __future__ import annotations

import numpy as np

from ...formats.message_properties import INNER_NUM
from ...formats.sys_flag import COMPRESSION_MASK, SysFlag
from .catalogue import Severity
from .context import Scene
from .records import LOOK, Records, add_rows
from .register import of_records

_TOLERANCE_MS = 60_000
"""How far clocks may be apart."""
_PORT_MAX = 65535
_KNOWN_BITS = 0x7FF
_BATCH_BITS = int(SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH)


@of_records("I-023")
def body_crc(scene: Scene, records: Records) -> None:
    """body_crc is the CRC of the body as it is stored."""
    ok = records.batch.body_crc_ok
    if ok is None or ok.all():
        return
    stored = records.ints("body_crc")
    add_rows(scene, records, "I-023", ~ok, "the body is not that of its CRC", stored)


@of_records("I-024")
def empty_body(scene: Scene, records: Records) -> None:
    """The CRC of no body is 0."""
    length = records.columns.ints("body_length")
    if length.min() > 0:
        return
    crc = records.columns.ints("body_crc")
    add_rows(scene, records, "I-024", (length == 0) & (crc != 0), "an empty body with the CRC", crc)


@of_records("I-025")
def own_position(scene: Scene, records: Records) -> None:
    """A record names the position where it stands."""
    own = records.columns.ints("physical_offset")
    add_rows(scene, records, "I-025", own != records.position, "it says that it stands at", own)


@of_records("I-027")
def has_store_time(scene: Scene, records: Records) -> None:
    """storeTimestamp is greater than 0; a file is chosen by that of its first record."""
    time = records.columns.ints("store_timestamp")
    if time.min() > 0:
        return
    wrong = time <= 0
    file = scene.store.log_files.file_at(int(records.position[0]))
    first = file is not None and int(records.position[0]) - file.start <= (
        scene.store.log.frame_of(file).payload
    )
    text = "store timestamp"
    if first and wrong[0]:
        one = np.zeros(len(wrong), np.bool_)
        one[0], wrong[0] = True, False
        add_rows(scene, records, "I-027", one, f"first of its file, {text}", time)
    add_rows(scene, records, "I-027", wrong, text, time, severity=Severity.ERROR, repair=LOOK)


@of_records("I-029")
def plausible_times(scene: Scene, records: Records) -> None:
    """Nothing is stored in the future, or before it was sent."""
    time = records.columns.ints("store_timestamp")
    latest = scene.now_ms + _TOLERANCE_MS
    if time.max() > latest:
        add_rows(scene, records, "I-029", time > latest, "stored in the future, at", time)
    early = records.columns.ints("born_timestamp") - _TOLERANCE_MS > time
    if early.any():
        born = records.columns.ints("born_timestamp")
        add_rows(scene, records, "I-029", early, "stored before it was sent, at", born)


@of_records("I-030")
def queue_number(scene: Scene, records: Records) -> None:
    """queueId is not negative."""
    queue_id = records.columns.ints("queue_id")
    add_rows(scene, records, "I-030", queue_id < 0, "queue", queue_id)


@of_records("I-032")
def half_offsets(scene: Scene, records: Records) -> None:
    """A prepared or rolled back record has no queue offset."""
    flags = records.columns.ints("sys_flag")
    if not (flags & SysFlag.PREPARED).any():
        return
    offset = records.columns.ints("queue_offset")
    wrong = (flags & SysFlag.PREPARED != 0) & (offset != 0)
    add_rows(
        scene, records, "I-032", wrong, "prepared or rolled back, but with queue offset", offset
    )


@of_records("I-033")
def known_flags(scene: Scene, records: Records) -> None:
    """sysFlag has known bits only, and those together that belong together."""
    flags = records.columns.ints("sys_flag")
    if not flags.any():
        return
    wrong = flags & ~_KNOWN_BITS != 0
    wrong |= (flags & COMPRESSION_MASK != 0) & (flags & SysFlag.COMPRESSED == 0)
    batches = np.flatnonzero(flags & _BATCH_BITS)
    if len(batches):
        wrong[batches] |= records.properties.find(INNER_NUM).length[batches] < 0
    add_rows(scene, records, "I-033", wrong, "flags that do not go together:", flags)


@of_records("I-034")
def ports(scene: Scene, records: Records) -> None:
    """Ports lie in 0 … 65535: the hosts were read at the right width."""
    for name in ("born_host", "store_host"):
        port = records.columns.ints(f"{name}.port")
        if port.min() < 0 or port.max() > _PORT_MAX:
            wrong = (port < 0) | (port > _PORT_MAX)
            add_rows(scene, records, "I-034", wrong, f"{name} has port", port)
