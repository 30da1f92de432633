"""What a broker's load takes: files of the right length, records that pass its check."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.derive import Ragged
from mqstore.formats.property_columns import PropertyItems
from mqstore.store.broker.load_rules import (
    _TWO_PARTS,
    BodyCheck,
    LoadedFile,
    LoadFailure,
    load_files,
    passes,
    rows_not_to_store,
    truncate,
    walk,
)
from mqstore.store.broker.profiles import LoadRules, OnOddFile, profile_of
from mqstore.store.broker.snapshot import DirectoryEntry, FileBytes

from ..made_log import MadeLog

SIZE = 100
ODD = {
    "short": DirectoryEntry("00200", "short", 7, False),
    "directory": DirectoryEntry("00300", "directory", 4096, True),
    "named": DirectoryEntry("12a", "named", SIZE, False),
    "empty": DirectoryEntry("00400", "empty", 0, False),
}
"""In the order of their paths; the empty one is the last of all."""
WHOLE = [DirectoryEntry("00000", "0", SIZE, False), DirectoryEntry("-0100", "-100", SIZE, False)]


def loaded(version: str, *odd: str) -> tuple[list[int], list[str], list[str], str]:
    """Starts of the files loaded, names of hidden and of deleted ones, the case of a refusal."""
    found = load_files([*WHOLE, *(ODD[name] for name in odd)], SIZE, profile_of(version).load)
    kept = [file.start for file in found.files]
    hidden, deleted = ([entry.path for entry in entries] for entries in (found.hidden, found.deleted))
    return kept, hidden, deleted, found.refusal.case if found.refusal else ""


@pytest.mark.parametrize("version", ["4.3", "4.9", "5.1", "5.5.1"])
@pytest.mark.parametrize("odd", ["short", "directory", "empty", "named"])
def test_each_odd_entry_is_hidden_refused_passed_over_or_deleted(odd: str, version: str) -> None:
    """As the profile of the generation has it; a name that is no number stops every one of them."""
    rules = profile_of(version).load
    how = {"short": rules.wrong_length, "directory": rules.directory, "empty": rules.empty_last}.get(odd)
    kept, hidden, deleted, refusal = loaded(version, odd)
    assert kept == [0, -100]
    assert hidden == [odd] * (how is OnOddFile.HIDE)
    assert deleted == [odd] * (how is OnOddFile.DELETE)
    cases = {"short": "wrong-length", "directory": "directory", "empty": "empty-last-file", "named": "foreign-name"}
    assert refusal == (cases[odd] if how in (OnOddFile.REFUSE, None) else "")


def test_what_stands_behind_a_hidden_file_is_hidden_with_it() -> None:
    rules = LoadRules(OnOddFile.HIDE, OnOddFile.HIDE, OnOddFile.HIDE)
    behind = DirectoryEntry("00900", "900", SIZE, False)
    found = load_files([WHOLE[0], ODD["short"], behind], SIZE, rules)
    assert ([file.start for file in found.files], found.hidden) == ([0], [ODD["short"], behind])


@given(st.integers(1, 9), st.integers(0, 1000))
def test_behind_the_end_nothing_is_left(count: int, end: int) -> None:
    """The file that begins at the end stays, empty; what starts behind it goes."""
    files = [LoadedFile(number * SIZE, SIZE, None) for number in range(count)]
    removed = truncate(files, end, SIZE)
    assert [file.start for file in files] == [start for start in range(0, count * SIZE, SIZE) if start <= end]
    assert sum(file.wrote for file in files) == min(end, count * SIZE)
    assert len(files) + len(removed) == count


@pytest.mark.parametrize("cut", [0, 1, 50])
def test_a_walk_ends_at_the_first_record_that_is_not_whole(cut: int, tmp_path: Path) -> None:
    log = MadeLog(4096)
    places = [log.append(b"x" * size) for size in (10, 0, 300, 40)]
    (path,) = log.write(tmp_path).iterdir()
    data = bytearray(path.read_bytes())
    data[places[2] + log.spans[2][1] - cut : places[3]] = bytes(cut)  # the topic, or the body with it
    path.write_bytes(data)
    *good, failure = walk(FileBytes(str(path)), 0, profile_of("5.5").record, BodyCheck.BODY_CRC)
    starts = [start for columns in good if not isinstance(columns, LoadFailure) for start in columns.starts.tolist()]
    assert isinstance(failure, LoadFailure) and not failure.passed
    stop = 2 if cut == 50 else 4
    assert starts == places[:stop] and failure.offset == [*places, log.end][stop]
    assert passes(FileBytes(str(path)), profile_of("5.5").record, BodyCheck.BODY_CRC)


@pytest.mark.parametrize(
    ("topic", "properties", "passes_4", "passes_5"),
    [
        (b"SCHEDULE_TOPIC_XXXX", b"DELAY\x01x\x02", False, False),
        (b"SCHEDULE_TOPIC_XXXX", b"DELAY\x013\x02", True, True),
        (b"T", b"DELAY\x01x\x02", True, True),
        (b"T", b"INNER_NUM\x012\x02INNER_BASE\x01x\x02", True, False),
        (b"T", b"INNER_NUM\x01\x03n\x02INNER_BASE\x015\x02", True, False),
        (b"T", b"INNER_NUM\x01x\x02", True, True),
        (b"T", b"INNER_NUM\x01x\x02INNER_BASE\x01\x02", True, True),
        (b"T", b"INNER_NUM\x01x\x02INNER_NUM\x012\x02INNER_BASE\x015\x02", True, True),
    ],
)
def test_a_number_that_is_none_ends_the_log(
    topic: bytes, properties: bytes, passes_4: bool, passes_5: bool, tmp_path: Path
) -> None:
    """The same for one record alone and for one among many, where native code looks for the names."""
    log = MadeLog(1 << 16)
    for _ in range(200):
        log.append(b"x", topic=b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x012\x02")
    strange = log.append(b"x", topic=topic, properties=properties)
    log.append(b"y")
    (path,) = log.write(tmp_path).iterdir()
    for version, good in (("4.9", passes_4), ("5.1", passes_5), ("5.5.1", passes_5)):
        for begin in (0, strange):
            *_, failure = walk(FileBytes(str(path)), begin, profile_of(version).record, BodyCheck.BODY_CRC)
            assert isinstance(failure, LoadFailure)
            assert (failure.offset == strange) is not good
            assert good or failure.size == -1


@pytest.mark.parametrize(
    ("text", "passes"),
    [(b"1_2", True), (b"_2", True), (b"1_2_", True), (b"1", False), (b"1_", False), (b"a_b_c", False)],
)
def test_two_parts_as_java_splits(text: bytes, passes: bool) -> None:
    assert (_TWO_PARTS.fullmatch(text) is not None) == passes


def test_a_level_halts_only_at_what_it_has_still_to_deliver() -> None:
    """A record whose numbers cannot be read ends the log, whatever was delivered."""
    level, texts = b"SCHEDULE_TOPIC_XXXX", [b"DELAY\x01x\x02", b"DELAY\x012\x02", b"DELAY\x012\x02"]
    topics, items = Ragged.of([level] * 3), PropertyItems(Ragged.of(texts))
    rules = profile_of("4.9").record
    assert sorted({*rows_not_to_store(topics, items, rules).tolist()}) == [0, 1, 2]
    assert sorted({*rows_not_to_store(topics, items, rules, lambda rows: rows == 2).tolist()}) == [0, 2]
    later = profile_of("5.1").record
    assert rows_not_to_store(topics, items, later).tolist() == [0]
