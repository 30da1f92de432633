"""What two records in a row tell: the same wherever the batches and parts of the log begin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mqstore.formats.message_properties import ITEM_SEPARATOR, format_properties
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.log import scan
from mqstore.store.log.batch import Batch
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.put.new_message import NewMessage, WriterOptions
from mqstore.store.put.writer import StoreWriter
from mqstore.store.recover.recovery import replan
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import log_pass

from .apart import CUT, NOW_MS, SIZES, told, written

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pass, "CUT_BYTES", CUT)


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("alone", [False, True])
def test_two_records_of_a_client_without_a_separator_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, alone: bool
) -> None:
    """Wherever a window or a file ends between them; one that stands alone was damaged."""
    for name in ("NARROW_BYTES", "WINDOW_BYTES", "_WIDEST_BYTES"):
        monkeypatch.setattr(scan, name, 1 << 12)
    message = NewMessage(b"orders", bytes(1000), properties=format_properties({"a": "b"}))
    root = written(tmp_path / "s", [message] * 251)
    with StoreReader(root, SIZES) as store:
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
    found = told(root, "I-055", jobs, broker_version="5.3")
    assert sum(finding.count for finding in found) == (len(wanted) if alone else 0)


@pytest.mark.parametrize("version", ["4.9", "5.3"])
def test_a_client_may_send_a_nul(tmp_path: Path, version: str) -> None:
    """As 4.9.7 and 5.3.3 store it; a record that is torn at its end, or at a separator, has lost properties."""
    sent = {"color": "red~ish", "long": "~b" * 3000, "n~": "~", "last": "a value"}
    text = format_properties(sent, final_separator=version == "5.3")
    root, whole = tmp_path / "s", NewMessage(b"orders", b"x", properties=text)
    with StoreWriter.open(root, SIZES, WriterOptions(as_broker=version), clock=lambda: NOW_MS) as store:
        for _ in range(7):
            store.append(whole)
    log = root / "commitlog" / f"{0:020d}"
    data = log.read_bytes().replace(b"~", b"\0")
    assert data.count(text.replace(b"~", b"\0")) == 7
    log.write_bytes(data)
    assert not told(root, "I-055", 1, broker_version=version)
    begin = [found.start() for found in re.finditer(b"color", data)]
    end = begin[2] + len(text)
    separator = begin[4] + text.index(ITEM_SEPARATOR)
    data = data[: end - 9] + bytes(9) + data[end:separator] + b"\0" + data[separator + 1 :]
    log.write_bytes(data)
    assert sum(finding.count for finding in told(root, "I-055", 1, broker_version=version)) == 2
    plan = replan(Layout.open(root, SIZES), version, RecoveryOptions(Policy.KEEP, NOW_MS, (version,)))
    assert [row.properties.keys() for row in plan.cut] == [{"color", "long", "n\0"}]


@pytest.mark.parametrize("others", [0, 1])
def test_a_record_of_4x_behind_those_of_5x(tmp_path: Path, others: int) -> None:
    """A broker of 4.x, or `put --as-broker 4.9`, writes no separator behind the last property."""
    ended, open_end = (format_properties({"a": "b"}, final_separator=of_5) for of_5 in (True, False))
    root = written(tmp_path / "s", [NewMessage(b"orders", b"x", properties=ended)] * 5)
    for _ in range(1 + others):
        with StoreWriter.open(root, SIZES, WriterOptions(as_broker="4.9")) as store:
            store.append(NewMessage(b"orders", b"x", properties=open_end))
    found = told(root, "I-055", 1, broker_version="5.3")
    assert [finding.severity for finding in found] == ([] if others else [Severity.WARNING])
