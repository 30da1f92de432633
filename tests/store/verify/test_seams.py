"""What is told only by several messages: the same wherever the batches and parts of the log begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.message_properties import ITEM_SEPARATOR, format_properties
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.findings import Finding
from mqstore.store.log import scan
from mqstore.store.log.batch import Batch
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.search.store import Store
from mqstore.store.verify import log_pass
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import look_at, together, verify

_SIZES = BrokerConfig({"mappedFileSizeCommitLog": "262144"})
_CUT = 1 << 13
_NOW_MS = 1_795_000_000_000


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pass, "CUT_BYTES", _CUT)


def _written(root: Path, messages: list[NewMessage], levels: str = "7s 20s") -> Path:
    """A store of a broker with these delay levels; the configuration is not kept."""
    config = _SIZES.with_set([f"messageDelayLevel={levels}"])
    options = WriterOptions(as_broker="5.3")
    with StoreWriter.open(root, config, options, clock=lambda: _NOW_MS) as store:
        for message in messages:
            store.append(message)
    return root


def _found(root: Path, code: str, jobs: int = 1, **scope: float | str) -> list[Finding]:
    with Store(root, _SIZES) as store:
        found = verify(store, Scope(**scope), now_ms=_NOW_MS, jobs=jobs)  # type: ignore[arg-type]
    return [finding for finding in found.findings if finding.code == code]


def _waiting(level: int) -> NewMessage:
    text = {"DELAY": str(level), "REAL_TOPIC": "orders", "REAL_QID": "0"}
    properties = format_properties(text)
    return NewMessage(SCHEDULE_TOPIC.encode(), b"w", queue_id=level - 1, properties=properties)


_PLAIN = NewMessage(b"orders", bytes(1000))
_APART = [_PLAIN] * 20


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_levels_of_a_broker_are_known_by_messages_far_apart(tmp_path: Path, jobs: int) -> None:
    """No part of the log has two messages that wait 7 s."""
    root = _written(tmp_path / "own", [_waiting(1), *_APART, _waiting(1), *_APART, _waiting(1)])
    assert _found(root, "I-065", jobs) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", [1, 3])
def test_a_message_that_waits_as_no_other_does_is_told(tmp_path: Path, jobs: int) -> None:
    mixed = [_waiting(2), *_APART, _waiting(1), *_APART, _waiting(1), _waiting(2), _waiting(2)]
    root = _written(tmp_path / "mixed", mixed)
    queue = root / "consumequeue" / SCHEDULE_TOPIC / "1"
    with Store(root, _SIZES) as store, store.queues.open(SCHEDULE_TOPIC, 1) as opened:
        unit = opened.unit(0)
    assert unit is not None
    file = next(queue.iterdir())
    data = file.read_bytes()
    old, new = ((unit.tags_code + more).to_bytes(8) for more in (0, 3000))
    file.write_bytes(data.replace(old, new, 1))
    found = _found(root, "I-065", jobs)
    assert [finding.offset for finding in found] == [data.index(old) // 20 * 20]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_commit_of_nothing_far_in_front_is_told(tmp_path: Path, jobs: int) -> None:
    """The batches in front of it have neither half messages nor such that name one."""
    commit = NewMessage(b"orders", b"c", sys_flag=int(SysFlag.COMMIT), prepared_transaction_offset=1)
    root = _written(tmp_path / "commit", [*_APART, commit, *_APART])
    assert len(_found(root, "I-047", jobs)) == 1


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("alone", [False, True])
def test_two_records_of_a_client_without_a_separator_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, alone: bool
) -> None:
    """Wherever a window or a file ends between them; one that stands alone was damaged."""
    for name in ("NARROW_BYTES", "WINDOW_BYTES", "_WIDEST_BYTES"):
        monkeypatch.setattr(scan, name, 1 << 12)
    message = NewMessage(b"orders", bytes(1000), properties=format_properties({"a": "b"}))
    root = _written(tmp_path / "s", [message] * 251)
    with Store(root, _SIZES) as store:
        batches = [item for item in store.log.scan(crc=False) if isinstance(item, Batch)]
        ends = [end for batch in batches for end in (batch.position + batch.columns.ints("total_size")).tolist()]
        files = [(file.start, Path(file.path)) for file in store.log_files.files]
    assert len(files) > 1 and len(batches) > 20
    wanted = [number for number in range(len(ends)) if number % 3 == 0 or (number % 3 == 1 and not alone)]
    for start, path in files:
        data = bytearray(path.read_bytes())
        for end in (ends[number] - start for number in wanted):
            if 0 < end <= len(data):
                assert data[end - 1] == ITEM_SEPARATOR[0]
                data[end - 1] = ord("x")
        path.write_bytes(data)
    found = _found(root, "I-055", jobs, broker_version="5.3")
    assert sum(finding.count for finding in found) == (len(wanted) if alone else 0)


def test_a_sample_does_not_miss_what_it_has_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The half message stands in a piece that was not drawn."""
    monkeypatch.setattr(log_pass, "SLICE_BYTES", _CUT)
    drawn = [log_pass.Part(0, _CUT), log_pass.Part(5 * _CUT, None)]
    monkeypatch.setattr(log_pass, "_sample", lambda *_: drawn)
    half = NewMessage(b"RMQ_SYS_TRANS_HALF_TOPIC", b"h")
    with Store(_written(tmp_path / "s", [*_APART, half]), _SIZES) as store:
        at = next(store.queues.open("RMQ_SYS_TRANS_HALF_TOPIC", 0).units(0, 1))[1]
    named = int(at["physical_offset"][0])
    assert _CUT < named < 5 * _CUT
    commit = NewMessage(b"orders", b"c", sys_flag=int(SysFlag.COMMIT), prepared_transaction_offset=named)
    root = _written(tmp_path / "t", [*_APART, half, *_APART, commit])
    assert _found(root, "I-047", sample_percent=50) == []


@pytest.mark.parametrize("named", [-1, -_CUT])
def test_a_sample_tells_of_a_half_message_in_front_of_the_log(tmp_path: Path, named: int) -> None:
    """No piece can have it, whether it was drawn or not."""
    commit = NewMessage(b"orders", b"c", sys_flag=int(SysFlag.COMMIT), prepared_transaction_offset=named)
    root = _written(tmp_path / "s", [*_APART, commit])
    for scope in (dict[str, float](), {"sample_percent": 50}):
        assert len(_found(root, "I-047", **scope)) == 1


def test_a_part_that_saw_another_state_of_any_log_file_does_not_count(tmp_path: Path) -> None:
    """Between a look at the parts and the verdict a byte in the middle of the log is spoiled."""
    root = _written(tmp_path / "s", [NewMessage(b"orders", bytes(60_000))] * 14)
    with Store(root, _SIZES) as store:
        parts = [look_at(store, Scope(), number, 2, now_ms=_NOW_MS) for number in range(2)]
        *_, middle, _ = (Path(file.path) for file in store.log_files.files)
    assert any(part.left for part in parts)
    with middle.open("r+b") as file:
        file.seek(30_000)
        file.write(b"?")
    with Store(root, _SIZES) as store:
        found = verify(store, now_ms=_NOW_MS, looked_at=together(parts)).findings
    assert "I-023" in {finding.code for finding in found}, found
