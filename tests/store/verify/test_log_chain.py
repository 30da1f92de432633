"""The chain of records: what stands between two of them, and what a part may take on of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.formats.blank import MAGIC_BLANK
from mqstore.formats.dledger import HEAD, HEADER_BYTES
from mqstore.store.findings.findings import Finding
from mqstore.store.log import scan
from mqstore.store.log.commit_log import Extent, ExtentKind
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.log_chain import Chain, chain_of, no_record
from mqstore.store.verify.run import verify

from ...stores import unpack
from .mutations.edit import Place, overwrite, records, set_field

_CHAIN = {"I-020", "I-021", "I-022", "I-040", "I-041", "I-042", "I-043", "I-054"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A sound store of two log files."""
    return unpack("5.3.3-clean", tmp_path)


def said(root: Path) -> list[Finding]:
    with StoreReader(root) as store:
        found = verify(store, Scope(groups=frozenset({"commit_log"}))).findings
    return [finding for finding in found if finding.code in _CHAIN]


def places(root: Path) -> list[Place]:
    """The records of the first file."""
    found = records(root)
    return [place for place in found if place.path == found[0].path]


def test_a_magic_code_in_the_middle_is_a_range_without_records(root: Path) -> None:
    """It is told once, from the record to the next one that is whole; what a start loses behind it, file by file."""
    assert said(root) == []
    place = places(root)[5]
    place.set("magic_code", 0x12345678)
    (finding,) = [f for f in said(root) if f.code == "I-020"]
    assert (finding.path, finding.offset, finding.length) == (str(place.path), place.offset, place.size)
    behind = [f for f in said(root) if f.code != "I-020"]
    assert {f.code for f in behind} == {"I-042"}
    assert [f.offset for f in behind] == [place.offset + place.size, 0]
    assert len({f.path for f in behind}) == 2


def test_the_only_file_was_cut_behind_its_records(tmp_path: Path) -> None:
    """Nothing but the file tells the length of files: what to give is said."""
    root = unpack("5.3.3-v2", tmp_path)
    last = records(root)[-1]
    os.truncate(last.path, last.offset + last.size)
    (finding,) = said(root)
    assert "leaves no room for a BLANK; if the file was cut, name" in finding.message


def test_a_blank_with_records_behind_it_in_its_file(root: Path) -> None:
    place = places(root)[5]
    place.set("magic_code", MAGIC_BLANK)
    found = {f.code: f for f in reversed(said(root))}
    assert found.keys() == {"I-041", "I-042"}
    blank = found["I-041"]
    assert (blank.path, blank.offset, blank.length) == (str(place.path), place.offset, place.size)


@pytest.mark.parametrize("name", ["5.3.3-clean", "4.9.7-killed-bit-restarted"])
def test_records_behind_the_end_are_counted_over_all_windows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind damage, and those that a start has given up: the text tells as many as `count`."""
    monkeypatch.setattr(scan, "WINDOW_BYTES", 1 << 13)
    monkeypatch.setattr(scan, "NARROW_BYTES", 1 << 12)
    root = unpack(name, tmp_path)
    if name == "5.3.3-clean":
        places(root)[5].set("magic_code", 0x12345678)
    found = [f for f in said(root) if f.code == "I-042"]
    assert max(f.count for f in found) > 100
    assert [int(f.message.split()[0]) for f in found] == [f.count for f in found]


def test_bytes_behind_the_end(root: Path) -> None:
    """What is no record is told as that."""
    with StoreReader(root) as store:
        end = store.log_end.position
        file = store.log_files.file_at(end)
        assert file is not None
    overwrite(Path(file.path), end - file.start, b"noise that was never a record" * 9)
    found = said(root)
    assert found and all((f.path, f.offset) >= (file.path, end - file.start) for f in found)


def test_a_part_is_taken_on_behind_what_is_in_order_only() -> None:
    extent = Extent(ExtentKind.DAMAGE, 10, 20)
    assert Chain().can_merge(Chain(open=extent))
    assert Chain(end=10, mended=True).can_merge(Chain())
    for odd in (Chain(open=extent), Chain(damage=10), Chain(lost=True), Chain(blank=extent)):
        assert not odd.can_merge(Chain())


def test_the_state_behind_a_part_is_that_of_the_part(root: Path) -> None:
    blank = Extent(ExtentKind.BLANK, 80, 20)
    with StoreReader(root) as store:
        context = VerifyContext(store, Scope())
        chain = chain_of(context)
        chain.end = 40
        chain.merge(context, Chain(end=100, blank=blank, mended=True))
        assert (chain.end, chain.blank, chain.mended) == (100, blank, True)
        assert chain_of(context) is chain
        no_record(context, Extent(ExtentKind.MISSING, 100, 50))
        assert (chain.end, chain.lost, chain.blank) == (150, True, None)


@pytest.mark.parametrize(
    ("field", "value"), [("magic", 2), ("index", 7), ("term", -2), ("pos", 7), ("body_length", 33), ("body_length", -1)]
)
def test_the_entry_whose_head_is_wrong_is_named(field: str, value: int, tmp_path: Path) -> None:
    """By all that DLedger's recovery asks of it, with its place and what stands there."""
    root = unpack("5.3.3-dledger", tmp_path)
    place = records(root)[100]
    entry = place.offset - HEADER_BYTES
    set_field(place.path, entry, HEAD, field, value)
    with StoreReader(root) as store:
        found = verify(store, Scope(groups=frozenset({"commit_log"}))).findings
    told = [f for f in found if f.code == "I-052"]
    assert (told[0].path, told[0].offset) == (str(place.path), entry)
    assert told[0].message.endswith(f"{field} {value}")
    assert sum(f.count for f in told) == (2 if field == "index" else 1)
