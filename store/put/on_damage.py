"""What a writer does with a body that failed its checksum where it was read (`body_crc_ok`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..counted import counted
from ..errors import Corrupted

HINT = "--on-damage skip leaves it out, --on-damage mark keeps its checksum"


class OnDamage(StrEnum):
    """Refuse it; leave it out; keep a checksum that fails. It is never stored as a sound one."""

    FAIL = "fail"
    SKIP = "skip"
    MARK = "mark"


@dataclass
class CorruptedBodies:
    """How a writer takes them, and how many it has met."""

    on_damage: OnDamage = OnDamage.FAIL
    skipped: int = 0
    marked: int = 0

    @property
    def met(self) -> int:
        """All of them."""
        return self.skipped + self.marked

    def take(self, count: int, where: str) -> bool:
        """Note some of them; whether they are written. Raises Corrupted. where: the first of them."""
        if count and self.on_damage is OnDamage.FAIL:
            raise Corrupted(f"{where}: the body failed its checksum", hint=HINT)
        if self.on_damage is OnDamage.SKIP:
            self.skipped += count
            return False
        self.marked += count
        return True

    def remarks(self) -> Iterator[str]:
        """What people should know."""
        if self.skipped:
            yield counted(
                self.skipped,
                "message left out: its body failed its checksum",
                "messages left out: their bodies failed their checksums",
            )
        if self.marked:
            yield counted(
                self.marked,
                "message has a body that failed its checksum; its copy fails, too",
                "messages have bodies that failed their checksums; their copies fail, too",
            )
