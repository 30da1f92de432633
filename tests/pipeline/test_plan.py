"""What a job is to read, looked at before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.pipeline.plan import plan_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InvalidInput, Missing, StoreError, Unsupported

from ..stores import unpack


def test_queues_in_rocksdb_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="cannot be rebuilt"):
        plan_of([unpack("5.3.3-rocksdb", tmp_path)], BrokerConfig())


def test_a_store_that_cannot_be_read_is_told_and_the_others_are_rebuilt(tmp_path: Path) -> None:
    root, missing, told = unpack("5.3.3-v2", tmp_path), tmp_path / "none", list[Path]()
    plan = plan_of([root, missing], BrokerConfig(), tell=lambda path, _: told.append(path))
    assert [store.folder for store in plan.stores] == [root.name]
    assert told == [missing]
    with pytest.raises(Missing):
        plan_of([missing, tmp_path / "neither"], BrokerConfig(), tell=lambda path, _: None)


def test_bad_input_is_told_before_spark_starts(tmp_path: Path) -> None:
    root = unpack("5.3.3-v2", tmp_path)
    with pytest.raises(Missing):
        plan_of([root, tmp_path / "none"], BrokerConfig())
    with pytest.raises(InvalidInput, match="named twice"):
        plan_of([root, tmp_path / "." / root.name], BrokerConfig())
    with pytest.raises(InvalidInput, match="not a broker version"):
        plan_of([root], BrokerConfig(), "x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StoreError):
        plan_of([tmp_path / "loop"], BrokerConfig())
