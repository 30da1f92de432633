"""Group B: the commit log (spec 08, I-020 … I-056)."""

from __future__ import annotations

from .records import Records
from .register import of_records
from .scene import Scene


@of_records("I-023")
def body_crc(scene: Scene, records: Records) -> None:
    """body_crc is the CRC of the body as it is stored."""
    ok = records.batch.body_crc_ok
    if ok is None or ok.all():
        return
    stored = records.ints("body_crc")
    scene.log_rows(
        "I-023",
        ~ok,
        records.position,
        records.ends,
        lambda row: (
            f"record at {records.position[row]}: the body is not that of its CRC {stored[row]}"
        ),
    )
