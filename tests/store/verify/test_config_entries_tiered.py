"""Tiered segments of real classes in a real store: sound ones have no finding, and none that are elsewhere."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from mqstore.formats.tiered_index import HEADER_BYTES
from mqstore.formats.tiered_index_file import MAGIC_OPEN
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.findings import Finding
from mqstore.store.inspect.description import describe
from mqstore.store.search.store import StoreReader
from mqstore.store.tiered.segments import OF_5_1
from mqstore.store.verify.config_entries import tiered_segments_are_there
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Verdict

from ... import stores, tiered
from .mutations import NOW_MS
from .mutations.config import add_tier

pytestmark = pytest.mark.long

CODES = ("I-153", "I-157", "I-158", "I-159")


@pytest.fixture(params=tiered.VERSIONS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store with the tiered copies of its own messages."""
    root = stores.unpack(f"{request.param}-clean", tmp_path)
    add_tier(root, request.param)
    return root


def told(root: Path, **options: str) -> tuple[Verdict, list[Finding]]:
    """The verdict, and its findings about the tier."""
    with StoreReader(root, BrokerConfig(options)) as opened:
        verdict = verify(opened, now_ms=NOW_MS)
    return verdict, [finding for finding in verdict.findings if finding.code in CODES]


def test_a_sound_tier_has_no_finding(store: Path) -> None:
    verdict, found = told(store)
    assert (found, [text for text in verdict.unread if "tiered" in text]) == ([], [])


def test_segments_elsewhere(store: Path, tmp_path: Path) -> None:
    """As configured they are looked at; without they are not looked at, which is no finding."""
    tier = tmp_path / "tier"
    tier.mkdir()
    shutil.move(store / tiered.CLUSTER, tier)
    verdict, found = told(store)
    assert found == []
    assert [text for text in verdict.unread if "tiered" in text] != []
    verdict, found = told(store, tieredStoreFilePath=str(tier))
    assert (found, [text for text in verdict.unread if "tiered" in text]) == ([], [])


def test_what_is_wrong_with_segments(store: Path) -> None:
    """One is gone, one cut, one unknown: one finding for each directory, with the position."""
    queue = tiered.queue_path(store, 0, "CONSUME_QUEUE")
    log = tiered.queue_path(store, 1, "COMMIT_LOG")
    first, last = (min(queue.iterdir(), key=lambda one: one.name[8:]), max(log.iterdir(), key=lambda one: one.name[8:]))
    first.unlink()
    size = last.stat().st_size
    last.write_bytes(last.read_bytes()[:-1])
    found = {finding.path: finding.message for finding in told(store)[1] if finding.code == "I-157"}
    assert found == {
        str(queue): "broker-a/orders/0: the segment at 0, 200 bytes, is not there",
        str(log): f"broker-a/orders/1: the segment at {int(last.name[8:])} has {size - 1} bytes, "
        f"the metadata says {size}",
    }


def test_metadata_that_are_gone(store: Path) -> None:
    """A broker begins the tiered files anew, over the segments that are there."""
    config = store / "config"
    for path in config.glob("tieredStoreMetadata.json*"):
        path.unlink()
    verdict, (found,) = told(store)
    assert (found.code, found.severity.name, verdict.status.value) == ("I-157", "FATAL", "damaged")
    assert found.message.endswith("has none of them: a broker with a tiered store writes over them")


def test_a_queue_that_the_metadata_do_not_have(store: Path) -> None:
    shutil.copytree(tiered.queue_path(store, 0, "COMMIT_LOG"), tiered.queue_path(store, 7, "COMMIT_LOG"))
    (found,) = told(store)[1]
    assert found.path == str(tiered.queue_path(store, 7, "COMMIT_LOG"))
    assert found.message.startswith("broker-a/orders/7: the segment at 0 is not in the metadata")


def test_other_brokers_in_a_shared_directory(store: Path, tmp_path: Path) -> None:
    """A configured directory has a folder for each broker: the metadata of this one have nothing of the others."""
    tier = tmp_path / "tier"
    tier.mkdir()
    shutil.move(store / tiered.CLUSTER, tier)
    shutil.copytree(tier / tiered.CLUSTER / "broker-a", tier / tiered.CLUSTER / "broker-b")
    assert told(store, tieredStoreFilePath=str(tier))[1] == []
    for path in (store / "config").glob("tieredStoreMetadata.json*"):
        path.unlink()
    assert told(store, tieredStoreFilePath=str(tier))[1] == []
    (found,) = told(store, tieredStoreFilePath=str(tier), brokerName="broker-b")[1]
    assert (found.code, found.severity.name) == ("I-157", "FATAL")


def test_the_last_segment_may_be_longer(store: Path) -> None:
    """It is written before the metadata."""
    log = tiered.queue_path(store, 1, "COMMIT_LOG")
    last = max(log.iterdir(), key=lambda one: one.name[8:])
    last.write_bytes(last.read_bytes() + b"x")
    assert told(store)[1] == []


def test_while_a_broker_writes(store: Path) -> None:
    """Segments and metadata are not of one moment: nothing is said of them."""
    shutil.rmtree(tiered.queue_path(store, 0, "COMMIT_LOG"))
    with StoreReader(store) as opened:
        context = VerifyContext(opened, Scope(), NOW_MS, changing=True)
        tiered_segments_are_there(context)
    assert not context.findings
    assert context.unread == ["tiered segments: a broker is writing"]


def test_a_hole_between_tier_and_log(tmp_path: Path) -> None:
    """The tier ends before the log begins; where it reaches it, nothing is missing."""
    root = stores.unpack("5.3.3-expired", tmp_path)
    with StoreReader(root) as opened:
        verdict = verify(opened, now_ms=NOW_MS)
    assert not [one for one in verdict.findings if one.code in CODES]
    path = root / "config" / "tieredStoreMetadata.json"
    known = [m for m in stores.messages("5.3.3-expired") if m["queue_offset"] > 1]
    start = min(int(file.name) for file in (root / "commitlog").iterdir())
    first = min((m for m in known if m["physical_offset"] >= start), key=lambda m: m["physical_offset"])
    name, begin = f"broker-a/{first['topic']}/{first['queue_id']}", first["queue_offset"]
    for end, missing in ((begin - 1, 1), (begin, 0)):
        row = f'{{"path":"{name}","type":1,"baseOffset":0,"status":0,"size":{20 * end}}}'
        path.write_text(f'{{"consumeQueueFileSegmentTable":{{"{name}":{{0:{row}}}}}}}', "utf-8")
        verdict, found = told(root)
        texts = [finding.message for finding in found]
        assert ["1 message in neither" in text for text in texts] == [True] * missing
        assert not [one for one in found if one.severity.name != "WARNING"]


def change(path: Path, begin: int, end: int) -> None:
    data = bytearray(path.read_bytes())
    data[begin:end] = bytes(byte ^ 1 for byte in data[begin:end]) if end == begin + 1 else bytes(end - begin)
    path.write_bytes(data)


def first(store: Path, kind: str) -> Path:
    return min(tiered.queue_path(store, 0, kind).iterdir(), key=lambda path: path.name[8:])


@pytest.mark.parametrize(
    ("kind", "begin", "end", "text"),
    [
        ("COMMIT_LOG", 0, 400, " are not a record"),
        ("COMMIT_LOG", 88, 89, "does not match its CRC"),
        ("CONSUME_QUEUE", 0, 20, "the unit at queue offset 0 names 0 bytes at 0"),
        ("CONSUME_QUEUE", 27, 28, "the unit at queue offset 1 names"),
    ],
)
def test_segments_are_read(store: Path, kind: str, begin: int, end: int, text: str) -> None:
    """Zeros or one byte changed: what the tier alone has of old messages is damaged."""
    path = first(store, kind)
    change(path, begin, end)
    verdict, found = told(store)
    assert verdict.status.value == "damaged"
    of_segment = [finding for finding in found if finding.path == str(path)]
    assert [finding.code for finding in of_segment] == ["I-159"] and text in of_segment[0].message


def test_the_index_of_a_tier_is_read(store: Path) -> None:
    """A slot or the magic code is gone: no query by key finds the items, and consumers are served. A segment of 5.1 is
    told not to be read.
    """
    slot, magic, early = sorted((store / tiered.INDEX).iterdir(), key=lambda path: path.name[8:])[:3]
    used = next(at for at in range(HEADER_BYTES, 99, 8) if any(slot.read_bytes()[at + 4 : at + 8]))
    change(slot, used + 4, used + 8)
    change(magic, 0, 4)
    early.write_bytes(early.read_bytes()[:-4] + MAGIC_OPEN.to_bytes(4))
    verdict, found = told(store)
    told_of = {finding.path: finding for finding in found if finding.code == "I-159"}
    assert "in no slot, and found by no query" in told_of.pop(str(slot)).message
    assert "magic code is different" in told_of.pop(str(magic)).message
    assert not told_of and {finding.severity.name for finding in found} == {"WARNING"}
    assert f"INDEX/{early.name}: {OF_5_1}" in verdict.unread


def test_an_index_that_is_not_compacted_is_read(store: Path, tmp_path: Path) -> None:
    """A file without its magic code, and one that is cut off in its header, are damaged."""
    killed = tiered.unpack_killed(store.name.removesuffix("-clean"), tmp_path) / tiered.INDEX_FILES
    shutil.copytree(killed, store / tiered.INDEX_FILES)
    assert told(store)[1] == []
    path = min((store / tiered.INDEX_FILES).iterdir())
    used = next(at for at in range(HEADER_BYTES, 99, 8) if any(path.read_bytes()[at : at + 4]))
    change(path, used, used + 4)
    (finding,) = told(store)[1]
    assert (finding.code, finding.path, finding.severity.name) == ("I-159", str(path), "WARNING")
    change(path, 0, 4)
    assert "magic code is different" in told(store)[1][0].message
    path.write_bytes(path.read_bytes()[:10])
    assert "shorter than a header" in told(store)[1][0].message


def test_a_quick_run_does_not_read_them(store: Path) -> None:
    change(first(store, "COMMIT_LOG"), 0, 400)
    with StoreReader(store) as opened:
        verdict = verify(opened, Scope(quick=True), now_ms=NOW_MS)
    assert verdict.unread and "I-159" not in {finding.code for finding in verdict.findings}


def test_clusters_of_segments_are_not_foreign(store: Path) -> None:
    (store / "stray_dir").mkdir()
    assert [Path(entry.path).name for entry in describe(Layout.open(store)).foreign] == ["stray_dir"]


def test_segments_of_one_queue_that_were_exchanged(store: Path) -> None:
    """Each unit names a record, but the log has them in another order."""
    segments = sorted(tiered.queue_path(store, 0, "CONSUME_QUEUE").iterdir(), key=lambda path: path.name[8:])
    one, other = next((a, b) for a, b in pairwise(segments) if a.stat().st_size == b.stat().st_size)
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    verdict, found = told(store)
    assert verdict.status.value == "damaged"
    assert [finding.path for finding in found if finding.code == "I-159"] == [str(other)]
    other.write_bytes(one.read_bytes())
    assert [finding.path for finding in told(store)[1] if finding.code == "I-159"] == [str(other)]
