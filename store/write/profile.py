"""What distinguishes the bytes that broker generations write, as data.

One `WriterProfile` per generation of `store/recovery/profiles.py`; rules that recovery shares
(version 2 records, IPv6, tags in the index, light queues) stand there.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..recovery.profiles import Profile, profile_of


@dataclass(frozen=True)
class WriterProfile:
    """How one generation writes.

    final_separator: 02 behind the last property (spec 1.6). stale_blank: what follows the head of
    a BLANK are bytes of earlier records, not the file's own (spec 1.5). count_every_put: the
    index counts puts, not slots in use (spec 3.1). pid_in_abort: `abort` holds the process id
    (spec 4.2). checkpoint_fields: how many of the checkpoint's fields it knows (spec 4.1).
    modern_topics: topics.json has attributes and a state version (spec 5.2, 5.3).
    closed_dead_letters: %DLQ% topics cannot be read until somebody changes that.
    """

    start: Profile
    final_separator: bool
    stale_blank: bool
    count_every_put: bool
    pid_in_abort: bool
    checkpoint_fields: int
    modern_topics: bool
    closed_dead_letters: bool

    @property
    def version(self) -> str:
        """Short name of the generation, such as `5.3`."""
        return self.start.version


_WRITERS = {
    writer.version: writer
    for writer in (
        WriterProfile(profile_of("4.3"), True, True, True, False, 3, False, True),
        WriterProfile(profile_of("4.9"), False, False, False, False, 3, False, False),
        WriterProfile(profile_of("5.1"), False, False, False, True, 5, True, False),
        WriterProfile(profile_of("5.3"), True, False, False, True, 5, True, False),
        WriterProfile(profile_of("5.4"), True, False, False, True, 5, True, False),
        WriterProfile(profile_of("5.5"), True, False, False, True, 6, True, False),
    )
}


def writer_profile(version: str) -> WriterProfile:
    """The profile for a version number: the nearest generation. Raises InvalidInput."""
    return _WRITERS[profile_of(version).version]
