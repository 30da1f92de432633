"""What a job is to read, looked at before Spark starts."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from mqstore.pipeline.plan import StorePlan, folders_of, plan_of
from mqstore.store.arrow.stores import as_path
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InvalidInput, Missing, Refused, StoreError, Unsupported

from ..packing import pack_below
from ..stores import config, unpack


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


def test_a_compressed_timer_log_is_told_before_spark_starts(tmp_path: Path) -> None:
    """A wheel without its entries would lose messages."""
    root, other, told = unpack("5.3.3-timer-clean", tmp_path), unpack("5.3.3-v2", tmp_path), list[str]()
    assert pack_below([root / "timerlog"], "gzip")
    plan = plan_of([root, other], BrokerConfig(), tell=lambda _, error: told.append(str(error)))
    assert [store.folder for store in plan.stores] == [other.name]
    assert len(told) == 1 and told[0].startswith("no timer wheel can be made from a compressed timer log: ")


def test_a_log_that_is_gone_is_no_empty_one(tmp_path: Path) -> None:
    """Its disk is not mounted: beside full queues nothing is "complete"."""
    root = unpack("5.3.3-clean", tmp_path)
    (root / "commitlog").rename(tmp_path / "elsewhere")
    for link in (False, True):
        if link:
            (root / "commitlog").symlink_to(tmp_path / "not-mounted")
        with pytest.raises(Refused, match="no commit log, but full queues"):
            plan_of([root], BrokerConfig())
    (root / "commitlog").unlink()
    for part in ("consumequeue", "index"):
        shutil.rmtree(root / part)
    with pytest.raises(Missing, match="no commitlog here"):
        plan_of([root], BrokerConfig())


def test_a_log_directory_that_is_not_mounted_is_told(tmp_path: Path) -> None:
    root = unpack("5.3.3-multipath-killed", tmp_path)
    options = BrokerConfig(config(root.name, root))
    assert plan_of([root], options).stores[0].start == 0
    assert pack_below([root / "d2" / "commitlog"], "gzip")
    spare = BrokerConfig({**options, "storePathCommitLog": f"{options['storePathCommitLog']},{root}/d4"})
    assert plan_of([root], spare).stores[0].start == 0
    (root / "d1" / "commitlog").rename(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="d1/commitlog is not there: is a disk not mounted"):
        plan_of([root], options)


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


@pytest.mark.parametrize("name", ["5.3.3-batchcq", "5.3.3-cqext", "4.9.7-killed-hole"])
def test_the_plan_of_a_store_is_the_same_behind_its_way_through_json(name: str, tmp_path: Path) -> None:
    """Tasks get it so."""
    root = unpack(name, tmp_path)
    plan = plan_of([root], BrokerConfig(config(name, root)))
    (store,) = plan.stores
    assert StorePlan.of(json.loads(json.dumps(asdict(store)))) == store
    assert (store.bytes, store.file_bytes) == (store.stop - store.start, 20 * store.units_per_file)
    assert store.needs_one_process is (name != "4.9.7-killed-hole")
    output = store.output(tmp_path / "new")
    assert output.root == tmp_path / "new"
    if store.ext_file_bytes:
        assert output.broker_config.size("mappedFileSizeConsumeQueueExt")[0] == store.ext_file_bytes


def test_where_no_index_is_wanted_none_is_made(tmp_path: Path) -> None:
    (store,) = plan_of([unpack("5.3.3-v2", tmp_path)], BrokerConfig({"messageIndexEnable": "false"})).stores
    assert (store.index_slots, store.index_items) == (0, 0) and store.bytes > 0


COMBINED = {"rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true"}


@pytest.mark.parametrize(
    ("options", "in_files"), [({}, True), ({"enableMultiDispatch": "false"}, False), (COMBINED, False)]
)
def test_light_queues_are_made_where_the_broker_has_them_in_files(
    options: dict[str, str], in_files: bool, tmp_path: Path
) -> None:
    (store,) = plan_of([unpack("5.3.3-lmq", tmp_path)], BrokerConfig(options), "5.5.1").stores
    assert store.light_queues is in_files


def test_folders_keep_apart_what_has_one_name() -> None:
    assert folders_of([Path("/d/a/store"), Path("/d/b/store")]) == ["a/store", "b/store"]
    assert folders_of([Path("/d/a")]) == [""]


@pytest.mark.parametrize("roots", [["/d/a", "/d/a/b"], ["/a%2Fb/a", "/a%2Fb", "/a"], ["/", "/x\udcff"]])
def test_no_folder_lies_in_another(roots: list[str]) -> None:
    folders = [Path("/new", folder) for folder in folders_of([Path(root) for root in roots])]
    assert len(set(folders)) == len(roots)
    assert {folder.parent for folder in folders} == {Path("/new")}


def test_a_place_in_object_storage_stays_in_the_target() -> None:
    names = folders_of([as_path("s3://a/../../../x"), as_path("s3://a/b")])
    assert not any(".." in Path(name).parts for name in names)


def test_no_store_is_taken_twice() -> None:
    with pytest.raises(InvalidInput, match="a store is named twice"):
        folders_of([as_path("s3://a/b"), as_path("s3://a/c/../b")])
