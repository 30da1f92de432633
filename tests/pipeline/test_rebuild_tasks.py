"""Tasks of a rebuild, called here: parts that are kept and made into files later are those of one look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.pipeline.index_files import slices_of
from mqstore.pipeline.log_part import FileKey
from mqstore.pipeline.plan import plan_of
from mqstore.pipeline.rebuild_tasks import _bucket_of, make, part_folder, read
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.output.stage import Stage

from ..stores import unpack
from .trees import tree

KEYS = st.builds(FileKey, st.text(max_size=3) | st.just("\udcff"), st.integers(0, 1 << 31), st.integers(0, 9))


@given(KEYS, st.integers(1, 40))
def test_each_file_of_a_queue_is_in_one_bucket(key: FileKey, buckets: int) -> None:
    """The same one in every process, also where the topic is no text."""
    assert 0 <= _bucket_of(key, buckets) < buckets
    assert _bucket_of(FileKey(*key), buckets) == _bucket_of(key, buckets)
    assert _bucket_of(key, 1) == 0


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    yield Stage.begin(tmp_path / "target", Files())


def through_json(task: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(task))
    return found


def test_files_of_parts_are_those_of_the_whole_log(stage: Stage, tmp_path: Path) -> None:
    (store,) = plan_of([unpack("5.3.3-v2", tmp_path)], BrokerConfig()).stores
    cuts = [store.start + store.bytes * n // 3 for n in range(4)]
    splits = [list(pair) for pair in pairwise(cuts)]
    task = {"stage": str(stage.folder), "store": asdict(store), "number": 0}
    whole = read(through_json({**task, "splits": [[store.start, store.stop]], "whole": True}))
    kept = read(through_json({**task, "splits": splits, "whole": False}))
    assert whole["files"] and whole["index"] and not kept["files"] and not kept["index"]
    assert kept["attempt"] != whole["attempt"]
    for number in range(len(splits)):
        folder = part_folder(stage, 0, number)
        folder.parent.mkdir(parents=True, exist_ok=True)
        (stage.attempt(kept["attempt"]) / f"part-{number}").rename(folder)
    many = {**task, "parts": len(splits)}
    made = [make(through_json({**many, "bucket": number, "buckets": 3})) for number in range(3)]
    counts = [found["items"] for found in kept["found"]]
    assert sum(counts) == sum(found["items"] for found in whole["found"])
    made += [
        make(through_json({**many, "file": number, "slices": slices}))
        for number, slices in enumerate(slices_of(counts, store.index_items - 1))
    ]
    found = {path: digest for one in made for path, digest in by_number(tree(stage.attempt(one["attempt"]))).items()}
    assert found == by_number(tree(stage.attempt(whole["attempt"])))
    for kind in ("files", "index"):
        told = [sorted(map(without_attempt, some)) for some in (whole[kind], [f for one in made for f in one[kind]])]
        assert told[0] == told[1] and told[0]


def by_number(files: dict[str, str]) -> dict[str, str]:
    """Without the names of index files, which have the time of writing."""
    return {str(Path(path).parent) if path.startswith("index/") else path: seen for path, seen in files.items()}


def without_attempt(file: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in file.items() if k not in ("attempt",)}, sort_keys=True)
