"""What is known of a store when its case is looked for."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from ..audit.messages import Readability
from ..broker.load import LoadedFile
from ..disk.snapshot import Snapshot
from ..plan.plan import Plan
from ..queues.edits import is_whole_file, last_byte
from ..start.simulate import POISON, Outcome


@dataclass(frozen=True)
class Facts:
    """What is known when a case is looked for. plan: None where none could be made."""

    snapshot: Snapshot
    outcome: Outcome
    after: Readability
    plan: Plan | None
    interrupted: bool = False

    @property
    def refused(self) -> str:
        """Label of the refusal, "" if the load succeeds."""
        return self.outcome.refusal.case if self.outcome.refusal else ""

    @property
    def poisoned(self) -> bool:
        """A record cannot be dispatched."""
        return self.refused == "poison-record" or POISON in self.outcome.hangs

    @property
    def missing_files(self) -> bool:
        """Files are missing between those of the log."""
        starts = sorted(file.start for file in self.outcome.log.files)
        size = self.snapshot.log_file_bytes
        return any(later != earlier + size for earlier, later in pairwise(starts))

    @property
    def loaded(self) -> list[LoadedFile]:
        """Log files that the load took, those that the recovery gave up included."""
        return [*self.outcome.log.files, *self.outcome.log_removed]

    @property
    def odd_names(self) -> bool:
        """A file was loaded that no broker has named so."""
        size = self.snapshot.log_file_bytes
        return any(f.entry and not is_whole_file(f.entry, size) for f in self.loaded)

    @property
    def ghost(self) -> bool:
        """A record was taken for data that is none."""
        return self.outcome.walk is not None and self.outcome.walk.ghosts > 0

    @property
    def tail_used(self) -> bool:
        """Something stands behind the log end, or stood there before it was lost."""
        if self.plan is None:
            return False
        return self.plan.tail_bytes > 0 or (self.plan.beyond > 0 and self.tail_written)

    @property
    def tail_written(self) -> bool:
        """Behind the broker's log end its file is not all zeros."""
        end, size = self.outcome.log_end, self.snapshot.log_file_bytes
        for file in self.outcome.log.files:
            if file.entry is not None and 0 <= end - file.start < size:
                return last_byte(file.entry, end - file.start) > end - file.start
        return False

    @property
    def rest_is_zeros(self) -> bool:
        """The log ends inside a file, and there is nothing behind."""
        end, size = self.outcome.log_end, self.snapshot.log_file_bytes
        return end % size > 0 and not self.tail_written
