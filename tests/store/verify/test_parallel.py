"""Several processes, one answer: with any number of them verify says the same of a store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.log.commit_log import Batch
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import log_pass
from mqstore.store.verify.context import CACHES, Mergeable, Scope, VerifyContext
from mqstore.store.verify.log_pass import LogPass, read, scan
from mqstore.store.verify.parallel import Beside, PartResult
from mqstore.store.verify.run import load_checks, verify
from mqstore.store.verify.verdict import Verdict

from ... import slices
from ...stores import ALL, config, unpack
from .mutations import NOW_MS, copied, mutations, original
from .mutations.edit import Place, records

pytestmark = pytest.mark.long

_CUT = 1 << 15
_SEEN_IN_A_PASS = ("commit_log", "consume_queue", "index", "timer")
_FIELDS = ("queue_offset", "store_timestamp", "body_crc", "sys_flag", "physical_offset", "queue_id")


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of the stores have some hundred kilobytes."""
    monkeypatch.setattr(log_pass, "CUT_BYTES", _CUT)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[PartResult]:
    """The parts that were taken on."""
    found: list[PartResult] = []
    merge = Beside._merge

    def noting(self: Beside, result: PartResult) -> None:
        found.append(result)
        merge(self, result)

    monkeypatch.setattr(Beside, "_merge", noting)
    return found


def _verified(root: Path, jobs: int, name: str = "", scope: Scope | None = None) -> Verdict:
    with StoreReader(root, BrokerConfig(config(name, root)) if name else None) as store:
        return verify(store, scope, now_ms=NOW_MS, jobs=jobs)


def _assert_the_same(root: Path, name: str, what: str, jobs: tuple[int, ...] = (2, 3)) -> None:
    one = _verified(root, 1, name)
    for many in jobs:
        other = _verified(root, many, name)
        told = f"{name}, {what}: {many} processes"
        assert other.findings == one.findings, told
        assert (other.unread, other.facts) == (one.unread, one.facts), told
        assert (other.status, other.live) == (one.status, one.live), told


def test_parts_are_taken_on_and_what_is_wrong_is_seen_once_more(tmp_path: Path, taken: list[PartResult]) -> None:
    """A sound store, and one with damage in the part of the other process."""
    _assert_the_same(unpack("5.5.0-killed", tmp_path), "5.5.0-killed", "as it is", (3,))
    assert taken
    taken.clear()
    root = unpack("5.3.3-killed-page", tmp_path)
    _assert_the_same(root, "5.3.3-killed-page", "as it is", (2,))
    assert taken


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["5.3.3-clean", "5.5.0-killed"])
def test_parts_without_queues_are_taken_on(name: str, tmp_path: Path, taken: list[PartResult]) -> None:
    root = unpack(name, tmp_path)
    shutil.rmtree(root / "consumequeue")
    _assert_the_same(root, name, "without queues", (3,))
    assert taken


def _at_the_seams(root: Path) -> list[Place]:
    """The first record behind each cut, and the one in front of it."""
    with StoreReader(root) as store:
        starts = {file.path: file.start for file in store.log_files.files}
    places = records(root)
    cut = [(place.position - starts[str(place.path)]) // _CUT for place in places]
    return [
        each
        for number, (one, other) in enumerate(pairwise(places))
        if one.path == other.path and cut[number] != cut[number + 1]
        for each in (one, other)
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("number", range(2))
def test_a_seam_is_no_blind_spot(tmp_path: Path, number: int) -> None:
    random = slices.rng(f"seams {number}")
    root = unpack("5.3.3-clean", tmp_path)
    place = random.choice(_at_the_seams(root))
    did = place.set(_FIELDS[number], int(place.values[_FIELDS[number]]) - 3)
    _assert_the_same(root, "5.3.3-clean", did, (3,))
    assert any(finding.path == str(place.path) for finding in _verified(root, 2).findings)


def test_a_scan_from_a_cut_has_the_batches_of_the_whole_one(tmp_path: Path) -> None:
    with StoreReader(unpack("5.3.3-clean", tmp_path)) as store:
        scene = VerifyContext(store, Scope())
        whole = [(int(b.position[0]), b.end) for b in _batches(scene, store.log.min_offset)]
        files = store.log_files
        for begin, end in whole:
            file = files.file_at(begin)
            assert file is not None
            last = next(b for b in _batches(scene, begin) if b.end == end).position[-1]
            assert (begin - file.start) // _CUT == (int(last) - file.start) // _CUT
        middle = len(whole) // 2
        assert [(int(b.position[0]), b.end) for b in _batches(scene, whole[middle][0])] == whole[middle:]


def _batches(scene: VerifyContext, start: int) -> list[Batch]:
    found = scan(scene, start, None, crc=False)
    return [item.copy() for item in found if isinstance(item, Batch)]


def test_a_run_that_is_ended_does_not_wait_for_the_others(tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    asked = iter([False] * 2 + [True] * 10_000)
    with StoreReader(root) as store:
        verdict = verify(store, now_ms=NOW_MS, stop=lambda: next(asked), jobs=3)
    assert verdict.stopped_at is not None
    assert any("interrupted" in text for text in verdict.unread)


def test_another_process_that_dies_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: list[PartResult]
) -> None:
    def dies(*_: object, **__: object) -> list[PartResult]:
        raise MemoryError

    monkeypatch.setattr("mqstore.store.verify.parallel._Work._result_of", dies)
    _assert_the_same(unpack("5.5.0-killed", tmp_path), "5.5.0-killed", "without help", (3,))
    assert not taken


def test_all_that_is_kept_of_the_log_can_be_taken_on(tmp_path: Path) -> None:
    """Or is known to be none of it: another state would be forgotten at a seam."""
    alone = {"_Entries"}  # of DLedger logs: one process reads those
    kept: dict[str, object] = {}
    load_checks()
    for name in ("5.5.0-killed", "5.5.0-timer-killed", "5.3.3-cqext"):
        root = unpack(name, tmp_path)
        with StoreReader(root) as store:
            scene = VerifyContext(store, Scope(), NOW_MS)
            log_pass = LogPass(scene)
            read(scene, log_pass, scan(scene, store.log.min_offset, None, crc=True))
            kept |= {getattr(k, "__name__", str(k)): v for k, v in scene.states().items()}
    odd = {key for key, value in kept.items() if not isinstance(value, Mergeable)}
    assert odd <= CACHES | alone


@pytest.mark.slow
@pytest.mark.parametrize("name", slices.pick(ALL, "beside", 2))
def test_every_store_is_the_same_to_any_number_of_processes(name: str, tmp_path: Path) -> None:
    _assert_the_same(unpack(name, tmp_path), name, "as it is")


def _cases() -> list[tuple[str, int]]:
    codes = [code for code, m in mutations().items() if m.group in _SEEN_IN_A_PASS]
    return slices.pick([(code, seed) for code in codes for seed in range(3)], "beside mutations", 4)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "seed"), _cases())
def test_damage_is_the_same_to_any_number_of_processes(code: str, seed: int, tmp_path: Path) -> None:
    mutation = mutations()[code]
    random = slices.rng(f"beside {code} {seed}")
    name = random.choice(mutation.stores)
    root = copied(original(name, tmp_path), tmp_path)
    did = mutation.mutate(root, random)
    _assert_the_same(root, name, f"{code}: {did}")


def _noise(root: Path, random: Random) -> str:
    """Bytes of records are other ones."""
    places = random.sample(records(root), 12)
    for place in places:
        with place.path.open("r+b") as file:
            file.seek(place.offset + random.randrange(place.size))
            file.write(random.randbytes(1))
    return f"bytes of the records at {sorted(place.position for place in places)}"


def _seam(root: Path, random: Random) -> str:
    """A field of a record at a seam."""
    place, field = random.choice(_at_the_seams(root)), random.choice(_FIELDS)
    return place.set(field, int(place.values[field]) + random.choice((-1, 1, 1000)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(slices.share(60)))
@pytest.mark.parametrize("spoil", [_noise, _seam])
def test_spoiled_records_are_the_same_to_any_number_of_processes(
    spoil: Callable[[Path, Random], str], seed: int, tmp_path: Path
) -> None:
    random = slices.rng(f"{spoil.__name__} {seed}")
    name = random.choice(("5.3.3-clean", "5.5.0-killed", "4.9.7-clean", "5.3.3-propcrc"))
    root = copied(original(name, tmp_path), tmp_path)
    _assert_the_same(root, name, spoil(root, random))
