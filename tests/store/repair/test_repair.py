"""Repairs: nothing to do on clean stores; what was broken is as the broker wrote it; undo."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import Checkpoint
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, NotFound, Refused, Unsupported
from mqstore.store.repair.parts import Choice, RepairPart, chosen, part_of_code
from mqstore.store.repair.repair import Repair, analyze, replan
from mqstore.store.search.selection import queue_of, queue_text
from mqstore.store.session.apply import Applied, apply
from mqstore.store.session.undo import session_to_undo, undo

from ... import stores
from ...slices import pick, rng
from ..session.test_undo import everything

pytestmark = pytest.mark.long

NOW_MS = 1_795_300_000_000
#: Stores that a repair knows nothing of.
NOT_KNOWN = ("rocksdb", "dledger")
CLEAN = [
    name
    for name in stores.NAMES
    if stores.truth(name)["expected_verdict"] == "clean" and not any(word in name for word in NOT_KNOWN)
]
FAST = ("4.3.1-clean", "4.9.7-cqext", "5.3.3-batchcq", "5.3.3-expired", "5.5.0-timer-clean")
INDEX_SIZES = {"maxHashSlotNum": "slots", "maxIndexNum": "items"}


def examined(root: Path, config: BrokerConfig, choice: Choice) -> Repair:
    return analyze(Layout.open(root, config), choice, None, NOW_MS)


def repaired(root: Path, config: BrokerConfig, choice: Choice) -> Applied:
    """Carry the plan out; afterwards nothing is left of what was chosen."""
    found = examined(root, config, choice)
    layout = Layout.open(root, config)
    done = apply(
        layout, found.plan, lambda: replan(Layout.open(root, config), found.request), Files(), command="repair"
    )
    again = examined(root, config, choice)
    assert again.nothing_to_do, [edit.to_json() for edit in again.plan.edits]
    return done


def config_of(name: str, root: Path) -> BrokerConfig:
    return BrokerConfig({k: str(v) for k, v in stores.config(name, root).items()})


INDEXED_AGAIN = {"4.3.1-killed-restarted"}
"""A start has indexed old records once more (B20): a repair of all makes that index anew."""


def check_clean(name: str, folder: Path) -> None:
    root = stores.unpack(name, folder)
    found = examined(root, BrokerConfig({}), Choice())
    edits = [edit.to_json() for edit in found.plan.edits]
    if name in INDEXED_AGAIN:
        edits = [edit for edit in edits if "/index" not in edit["path"] and not edit["path"].endswith("/checkpoint")]
    assert not edits, edits


@pytest.mark.parametrize("name", FAST)
def test_nothing_to_do_on_a_clean_store(name: str, tmp_path: Path) -> None:
    check_clean(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", pick([n for n in CLEAN if n not in FAST], "clean to repair"))
def test_nothing_to_do_on_the_other_clean_stores(name: str, tmp_path: Path) -> None:
    check_clean(name, tmp_path)


def remove_parts(root: Path, parts: list[str]) -> None:
    for part in parts:
        shutil.rmtree(root / part)


def rows(root: Path, parts: list[str]) -> dict[str, bytes]:
    """Bytes of the files of some parts; index files by their order, since the name is a time."""
    found: dict[str, bytes] = {}
    for part in parts:
        for number, path in enumerate(sorted(p for p in (root / part).rglob("*") if p.is_file())):
            name = str(number) if part == "index" else str(path.relative_to(root))
            found[name] = path.read_bytes()
    return found


def check_removed(name: str, parts: list[str], choice: Choice, folder: Path) -> None:
    """Parts that were removed come back byte for byte, and undo takes that back."""
    root = stores.unpack(name, folder)
    config = config_of(name, root)
    wanted = rows(root, parts)
    remove_parts(root, parts)
    broken = everything(root)
    done = repaired(root, config, choice)
    made = rows(root, parts)
    assert [k for k in wanted if made.get(k) != wanted[k]] == []
    assert set(made) == set(wanted)
    layout = Layout.open(root, config)
    undo(layout, session_to_undo(layout, done.session), Files())
    assert everything(root) == broken


PLAIN = ("4.3.1-clean", "4.9.7-clean", "5.3.3-clean", "5.5.0-clean", "5.3.3-lmq", "5.3.3-v2")


@pytest.mark.parametrize("name", PLAIN)
def test_queues_that_were_removed_are_the_brokers(name: str, tmp_path: Path) -> None:
    check_removed(name, ["consumequeue"], chosen([RepairPart.QUEUE], ()), tmp_path)


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean", "5.5.0-clean"])
def test_an_index_that_was_removed_is_the_brokers(name: str, tmp_path: Path) -> None:
    check_removed(name, ["index"], chosen([RepairPart.INDEX], ()), tmp_path)


def test_one_queue_is_repaired_and_no_other(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    wanted = rows(root, ["consumequeue"])
    for queue in ("1", "2"):
        shutil.rmtree(root / "consumequeue" / "orders" / queue)
    repaired(root, BrokerConfig({}), chosen([], (("orders", 1),)))
    made = rows(root, ["consumequeue"])
    assert {name for name in wanted if name not in made} == {
        name for name in wanted if name.startswith("consumequeue/orders/2/")
    }
    assert all(made[name] == wanted[name] for name in made)


def test_any_field_of_a_unit_is_written_anew(tmp_path: Path) -> None:
    """Position, size and tags code: each byte of each field in some unit."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    wanted = rows(root, ["consumequeue"])
    path = next(p for p in sorted((root / "consumequeue" / "orders").rglob("0" * 20)))
    data = bytearray(path.read_bytes())
    generator = rng("fields of units")
    for unit in range(20):
        data[unit * 20 + unit] ^= generator.randrange(1, 256)
    path.write_bytes(data)
    repaired(root, BrokerConfig({}), chosen([RepairPart.QUEUE], ()))
    assert rows(root, ["consumequeue"]) == wanted


@pytest.mark.few(2)
@pytest.mark.parametrize("field", range(6))
def test_a_checkpoint_that_is_too_high_is_lowered(field: int, tmp_path: Path) -> None:
    root = stores.unpack("5.5.0-clean", tmp_path)
    path = root / "checkpoint"
    whole = path.read_bytes()
    for high in (b"\x7f" + b"\xff" * 7, b"\xff" * 8):
        data = bytearray(whole)
        data[8 * field : 8 * field + 8] = high
        path.write_bytes(data)
        found = examined(root, BrokerConfig({}), chosen([RepairPart.CHECKPOINT], ()))
        of_another = field == 3 and high[0] < 0x80
        assert found.nothing_to_do == of_another, "masterFlushedOffset is another broker's"
        if not of_another:
            verified = found.plan.complete_checkpoint
            repaired(root, BrokerConfig({}), chosen([RepairPart.CHECKPOINT], ()))
            written = Checkpoint.from_bytes(path.read_bytes())
            assert verified is not None
            assert written[field] == (0 if field == 3 else verified[field])
            data[8 * field : 8 * field + 8] = whole[8 * field : 8 * field + 8]
            assert Checkpoint.from_bytes(bytes(data))[:field] == written[:field]


@pytest.mark.parametrize("name", ["4.3.1-clean", "5.1.4-clean"])
def test_fields_that_the_version_does_not_know_are_lowered_once(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    path = root / "checkpoint"
    for high in (b"\x00\x00" + b"\x7f" * 6, b"\xd8" * 8):
        data = path.read_bytes()
        path.write_bytes(data[:32] + high * 2 + data[48:])
        repaired(root, BrokerConfig({}), chosen([RepairPart.CHECKPOINT], ()))
        assert examined(root, BrokerConfig({}), chosen([RepairPart.CHECKPOINT], ())).nothing_to_do


def test_a_checkpoint_that_is_missing_or_short(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    path = root / "checkpoint"
    size = path.stat().st_size
    for short in (None, 0, 17):
        path.unlink()
        if short is not None:
            path.write_bytes(bytes(short))
        repaired(root, BrokerConfig({}), chosen([RepairPart.CHECKPOINT], ()))
        assert path.stat().st_size == size


@pytest.mark.parametrize("queue", ["nosuch", "orders/99", "x*"])
def test_a_queue_that_the_store_has_not(queue: str, tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    with pytest.raises(NotFound, match="no queue"):
        examined(root, BrokerConfig({}), chosen([], (queue_of(queue),)))


@pytest.mark.parametrize("queue", ["%LMQ%a/b", "%LMQ%a/b/0"])
def test_a_queue_with_a_slash_in_its_name_is_left_and_told(queue: str, tmp_path: Path) -> None:
    root = stores.unpack("4.9.7-lmq", tmp_path)
    with pytest.raises(Unsupported, match="has a / in its name"):
        examined(root, BrokerConfig({}), chosen([], (queue_of(queue),)))


def test_a_healthy_store_with_queues_in_a_rocksdb_needs_no_repair(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    found = examined(root, BrokerConfig({}), chosen([RepairPart.QUEUE], ()))
    assert not [edit for edit in found.plan.edits if "consumequeue" in edit.path]


def test_a_damaged_log_is_for_recover(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-killed-page", tmp_path)
    before = everything(root)
    with pytest.raises(Refused, match="the log must be recovered first"):
        examined(root, BrokerConfig({}), chosen([RepairPart.INDEX], ()))
    assert not examined(root, BrokerConfig({}), Choice()).nothing_to_do
    assert everything(root) == before


def test_a_log_that_is_half_taken_back_is_for_undo(tmp_path: Path) -> None:
    """Neither `recover` nor a repair of everything would take it."""
    root = stores.unpack("5.3.3-killed-page", tmp_path)
    damaged = shutil.copytree(root / "commitlog", tmp_path / "damaged")
    repaired(root, BrokerConfig({}), Choice())
    journal = session_to_undo(Layout.open(root))
    assert journal is not None
    journal.begin_undo(Files())
    shutil.copytree(damaged, root / "commitlog", dirs_exist_ok=True)
    with pytest.raises(Refused, match=f"was interrupted; run: mqstore undo {root}$"):
        examined(root, BrokerConfig({}), chosen([RepairPart.INDEX], ()))


@pytest.mark.parametrize("name", ["5.1.4-lmq-poison", "5.5.0-lmq-poison"])
def test_a_poisoned_store_is_dispatched_around(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    repaired(root, BrokerConfig({}), Choice())
    assert not (root / "abort").exists()


def test_parts_of_codes() -> None:
    assert part_of_code("i-064") is RepairPart.QUEUE
    assert part_of_code("I-079") is RepairPart.EXT
    for code in ("I-023", "I-999", "", "'"):
        with pytest.raises(InvalidInput):
            part_of_code(code)


@pytest.mark.parametrize(
    ("text", "queue"),
    [
        ("orders", ("orders", None)),
        ("orders/3", ("orders", 3)),
        ("%LMQ%a/b", ("%LMQ%a/b", None)),
        ("%LMQ%a/b/0", ("%LMQ%a/b", 0)),
        ("a/1/", ("a/1", None)),
        ("*", ("*", None)),
    ],
)
def test_names_of_queues(text: str, queue: tuple[str, int | None]) -> None:
    assert queue_of(text) == queue
    assert queue_of(queue_text(queue)) == queue


@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(3))
def test_seeded_harm_to_queues_is_undone(part: int, tmp_path: Path) -> None:
    """Bytes, zeros, cuts: the queues are the broker's again whatever it was."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    wanted = rows(root, ["consumequeue"])
    generator = rng(f"harm to queues {part}")
    for _ in range(4):
        harm(root, generator)
        # garbage may look like an address in consumequeue_ext, which is for that part
        repaired(root, BrokerConfig({}), chosen([RepairPart.QUEUE, RepairPart.EXT], ()))
        assert rows(root, ["consumequeue"]) == wanted


def harm(root: Path, generator: random.Random) -> None:
    paths = sorted(p for p in (root / "consumequeue").rglob("0*") if p.is_file())
    path = generator.choice(paths)
    data = bytearray(path.read_bytes())
    at = generator.randrange(len(data))
    kind = generator.choice(["byte", "zeros", "remove", "noise"])
    if kind == "remove":
        path.unlink()
        return
    if kind == "byte":
        data[at] ^= generator.randrange(1, 256)
    else:
        size = generator.randrange(1, 200)
        new = bytes(size) if kind == "zeros" else generator.randbytes(size)
        data[at : at + size] = new[: len(data) - at]
    path.write_bytes(data)


def test_a_shifted_queue_keeps_its_numbers_unless_it_is_named(tmp_path: Path) -> None:
    """Units moved up by one: consumers may know them so, and who names the queue wants the log's."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    wanted = rows(root, ["consumequeue"])
    path = root / "consumequeue" / "orders" / "0" / ("0" * 20)
    data = path.read_bytes()
    path.write_bytes(data[UNIT_BYTES:] + bytes(UNIT_BYTES))
    config = BrokerConfig({})
    found = examined(root, config, chosen([RepairPart.QUEUE], ()))
    assert found.nothing_to_do and [str(queue) for queue in found.plan.shifted] == ["orders/0"]
    repaired(root, config, chosen([], (("orders", 0),)))
    assert rows(root, ["consumequeue"]) == wanted
