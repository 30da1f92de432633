"""What two records in a row tell: the same wherever the batches and parts of the log begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.message_properties import ITEM_SEPARATOR, format_properties
from mqstore.store.findings.catalogue import Severity
from mqstore.store.log import scan
from mqstore.store.log.batch import Batch
from mqstore.store.put.new_message import NewMessage, WriterOptions
from mqstore.store.put.writer import StoreWriter
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import log_pass

from .apart import CUT, SIZES, told, written

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
