"""Queues of batches against the log: each field of a unit wrong alone, a unit that is not there, none at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.formats.batch_consume_queue import UNIT, UNIT_BYTES
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ...damage import cut_units
from ...stores import unpack
from .mutations.edit import overwrite, read, set_field


@pytest.fixture(scope="module", params=["5.1.4-batchcq", "5.3.3-batchcq"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with queues of batches."""
    return unpack(request.param, tmp_path_factory.mktemp("batches"))


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    """A copy, to be changed."""
    return Path(shutil.copytree(original, tmp_path / "store"))


def said(root: Path) -> list[Finding]:
    """What verify says of batch queues."""
    with StoreReader(root) as store:
        found = verify(store, Scope(groups=frozenset({"consume_queue"}))).findings
    return [finding for finding in found if "batchconsumequeue" in finding.path]


def first_file(root: Path) -> Path:
    return min(path for path in (root / "batchconsumequeue").rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("physical_offset", "I-062"),
        ("size", "I-062"),
        ("tags_code", "I-065"),
        ("msg_base_offset", "I-082"),
        ("batch_size", "I-082"),
        ("store_time", "I-082"),
        ("compacted_offset", "I-082"),
        ("reserved", "I-082"),
    ],
)
def test_each_field(root: Path, field: str, code: str) -> None:
    """What is said is of that unit, and names the field where the record is the right one."""
    assert said(root) == []
    path = first_file(root)
    value = UNIT.parse(read(path, UNIT_BYTES, UNIT_BYTES))[field]
    set_field(path, UNIT_BYTES, UNIT, field, value + 3)
    about = [f for f in said(root) if f.offset == UNIT_BYTES and f.path == str(path)]
    assert code in {f.code for f in about}
    if field != "physical_offset":
        assert any(f"{field} is {value + 3}" in f.message and str(value) in f.message for f in about)
    if field in ("msg_base_offset", "batch_size"):
        assert "I-081" in {f.code for f in said(root)}, "units do not follow one another"


def test_a_unit_that_ends_behind_the_last_number(root: Path) -> None:
    path = first_file(root)
    set_field(path, UNIT_BYTES, UNIT, "physical_offset", (1 << 63) - 1)
    assert ("I-067", UNIT_BYTES) in {(f.code, f.offset) for f in said(root) if f.path == str(path)}


@pytest.mark.parametrize(("back", "level"), [(1, Severity.ERROR), (0, Severity.INFO)])
def test_a_start_asks_where_a_unit_begins(root: Path, back: int, level: Severity) -> None:
    """It keeps one behind the last that begins before the log's end."""
    with StoreReader(root) as store:
        end = store.log_end.position
    paths = sorted(path for path in (root / "batchconsumequeue").rglob("*") if path.is_file())
    path, data = next((path, path.read_bytes()) for path in paths if not any(path.read_bytes()[-UNIT_BYTES:]))
    last = max(at for at in range(0, len(data), UNIT_BYTES) if any(data[at : at + UNIT_BYTES]))
    unit = UNIT.parse(data[last : last + UNIT_BYTES])
    unit["msg_base_offset"] += unit["batch_size"]
    overwrite(path, last + UNIT_BYTES, UNIT.build({**unit, "physical_offset": end - back}))
    found = [(f.code, f.severity) for f in said(root) if f.offset == last + UNIT_BYTES]
    assert found == [("I-067", level)]


def test_a_unit_of_zeros_is_no_unit_and_its_message_has_none(root: Path) -> None:
    path = first_file(root)
    overwrite(path, UNIT_BYTES, bytes(UNIT_BYTES))
    codes = {f.code for f in said(root)}
    assert {"I-061", "I-070"} <= codes


def test_queues_behind_the_log_of_a_killed_broker_are_no_damage(root: Path) -> None:
    """Zeros behind the last unit are the end of the queue, up to the end of its file."""
    (root / "abort").touch()
    lost = cut_units(root, 150_000)
    found = said(root)
    assert {(f.code, f.severity) for f in found} == {(code, Severity.INFO) for code in ("I-070", "I-075")}
    told = {f.path.removeprefix(f"{root}/"): f.count for f in found if f.code == "I-070"}
    assert told == {queue: count for queue, count in lost.items() if "batch" in queue}


def test_a_queue_that_is_missing_is_told_once(root: Path) -> None:
    directory = first_file(root).parent
    shutil.rmtree(directory)
    (finding,) = [f for f in said(root) if f.code == "I-070"]
    assert finding.path == str(directory) and "is missing" in finding.message
    assert finding.count > 1
