"""What a writer does with bodies that failed their checksum where they were read (`body_crc_ok`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..counted import counted
from ..errors import Corrupted

HINT = "--on-damage skip leaves it out, --on-damage mark keeps its checksum"


class OnDamage(StrEnum):
    """Refuse the body; leave the message out; keep a checksum that fails. The body is never stored as a sound one."""

    FAIL = "fail"
    SKIP = "skip"
    MARK = "mark"


@dataclass
class CorruptedBodies:
    """Counts corrupted bodies and applies the option to them."""

    on_damage: OnDamage = OnDamage.FAIL
    skipped: int = 0
    marked: int = 0

    @property
    def met(self) -> int:
        """All corrupted bodies."""
        return self.skipped + self.marked

    def take(self, count: int, where: str) -> bool:
        """Count `count` corrupted bodies; return whether to write them. where: names the first. Raises Corrupted."""
        if count and self.on_damage is OnDamage.FAIL:
            raise Corrupted(f"{where}: the body failed its checksum", hint=HINT)
        if self.on_damage is OnDamage.SKIP:
            self.skipped += count
            return False
        self.marked += count
        return True

    def remarks(self) -> Iterator[str]:
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
