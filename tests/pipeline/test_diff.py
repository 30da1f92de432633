"""`diff`: pairs of stores, and what a queue's first difference is, in this process and on Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from mqstore.cli.app import run
from mqstore.cli.record_types import schema_of
from mqstore.formats.hashing import crc31
from mqstore.pipeline import diff as pipeline_diff
from mqstore.pipeline import spark as session
from mqstore.pipeline import tasks
from mqstore.pipeline.diff import here, on_spark, pairs_of
from mqstore.store.arrow.differences import Unsound
from mqstore.store.library import Store
from mqstore.store.log.batch import messages
from mqstore.store.log.commit_log import Batch, Extent, ExtentKind

from ..cli.json_schema import errors
from ..cli.two_stores import copy_of, spoil, told
from ..store.arrow.shuffled import shuffled
from ..stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["shuffled"]

Way = Callable[..., tuple[list[dict[str, Any]], Unsound]]


def run_here(_: object, function: str, given: list[dict[str, Any]], sizes: list[int]) -> list[Any]:
    """Tasks as Spark runs them, in this process."""
    assert function == "diff:compare_parts" and all(sizes) and len(sizes) == len(given)
    answers = [pipeline_diff.compare_parts(json.loads(json.dumps(task))) for task in given]
    return [json.loads(json.dumps(answer)) for answer in answers]


def paired(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The pairs of stores whose names are given for each side."""
    partners = {name: root for root, name in b.items()}
    return {name: (root, partners[name]) for root, name in a.items()}


@pytest.fixture(params=["here", "parts", pytest.param("spark", marks=pytest.mark.spark)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    """All ways to compare pairs of stores."""
    if request.param == "here":
        return lambda a, b: here(paired(a, b), {}, lambda size: None)
    monkeypatch.setattr(pipeline_diff, "_SPLIT_BYTES", 100_000)
    if request.param == "parts":
        monkeypatch.setattr(tasks, "run_tasks", run_here)
        return lambda a, b: on_spark(cast("SparkSession", None), paired(a, b), {})
    spark: SparkSession = request.getfixturevalue("spark")
    return lambda a, b: on_spark(spark, paired(a, b), {})


def test_pairs_by_what_their_paths_have_in_common() -> None:
    assert pairs_of(["/a/x"], ["/b/y"]) == ({"": ("/a/x", "/b/y")}, [])
    pairs, alone = pairs_of(["/a/1/s", "/a/2/s"], ["/b/c/1/s", "/b/c/2/s", "/b/c/3/s"])
    assert pairs == {"1/s": ("/a/1/s", "/b/c/1/s"), "2/s": ("/a/2/s", "/b/c/2/s")}
    assert alone == ["3/s"]


def flip(log: Path, body: bytes, behind: int, *, crc: int | None = None) -> None:
    """Flip a bit of a body in the file of a log; the CRC beside it, if given, is made right."""
    data = bytearray(log.read_bytes())
    at = data.index(body, behind)
    data[at] ^= 1
    if crc is not None:
        place = data.index(crc.to_bytes(4), behind)
        data[place : place + 4] = crc31(bytes(data[at : at + len(body)])).to_bytes(4)
    log.write_bytes(data)


def test_the_first_message_that_differs(way: Way, tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    other = copy_of(root)
    with Store(root) as store:
        changed = store.message("logs", 0, 3)
        last = store.log_files.files[-1]
        lost = [item for item in store.log.scan(last.start, last.end) if isinstance(item, Batch)]
        gone = {
            (message.topic, message.queue_id): message.queue_offset
            for batch in lost
            for message in reversed(list(messages(batch)))
        }
        in_last = sum(len(batch) for batch in lost)
    log = other / "commitlog"
    flip(min(log.iterdir()), changed.stored_body, changed.physical_offset, crc=changed.body_crc)
    max(log.iterdir()).unlink()
    found, unsound = way({str(root): ""}, {str(other): ""})
    assert not unsound
    for row in found:
        assert list(errors(schema_of("difference"), {"type": "difference", **row})) == []
    rows = {(row["topic"], row["queue_id"]): row for row in found}
    assert list(rows) == sorted({*gone, ("logs", 0)})
    assert (rows["logs", 0]["queue_offset"], rows["logs", 0]["how"]) == (3, "changed")
    assert sum(row["changed"] for row in found) == 1
    assert sum(row["only_a"] for row in found) == in_last
    for queue, offset in gone.items():
        if queue != ("logs", 0):
            assert (rows[queue]["queue_offset"], rows[queue]["how"]) == (offset, "only_a")


def test_a_flipped_bit_is_a_difference_though_the_checksum_is_the_same(way: Way, tmp_path: Path) -> None:
    """And on both sides no sound copy, though there is no difference then."""
    root = unpack("5.3.3-clean", tmp_path)
    other = copy_of(root)
    with Store(root) as store:
        hit = store.message("logs", 0, 3)
    place = hit.physical_offset
    flip(min((other / "commitlog").iterdir()), hit.stored_body, place)
    (row,), unsound = way({str(root): ""}, {str(other): ""})
    assert (row["topic"], row["queue_id"], row["queue_offset"]) == ("logs", 0, 3)
    assert (row["how"], row["changed"]) == ("changed", 1)
    assert unsound.bodies == {str(other): (1, place)}
    flip(min((root / "commitlog").iterdir()), hit.stored_body, place)
    found, unsound = way({str(root): ""}, {str(other): ""})
    assert found == []
    assert unsound.bodies == {str(root): (1, place), str(other): (1, place)}


def test_the_same_and_what_has_expired(way: Way, tmp_path: Path) -> None:
    root = unpack("4.9.7-clean", tmp_path)
    other = copy_of(root)
    pair = {str(root): "x"}, {str(other): "x"}
    found, unsound = way(*pair)
    assert found == [] and not unsound
    min((other / "commitlog").iterdir()).unlink()
    kept = {row["topic"]: row for row in way(*pair)[0]}
    assert all(row["how"] == "only_a" for row in kept.values()), "queues that B has not at all"
    assert "orders" not in kept


@pytest.fixture(params=["diff", pytest.param("pipeline diff", marks=pytest.mark.spark)])
def command(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Both commands; that of Spark in the session of all tests."""
    if request.param != "diff":
        spark = request.getfixturevalue("spark")
        monkeypatch.setattr(session, "spark_session", lambda *_, **__: nullcontext(spark))
    return list(request.param.split())


def test_damage_is_told(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where both are damaged, and not alike, no message differs; that none was compared is said."""
    root = unpack("4.9.7-killed-page", tmp_path)
    copy = copy_of(root)
    spoil(copy)
    assert run([*command, str(root), str(copy), "--format", "json"]) == 1
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert {row["type"] for row in rows} == {"comparison", "part_difference"}
    assert not rows[0]["same"] and rows[0]["differences"] == {"log": 1}
    lost = [line.removeprefix("not compared: ") for line in told(err)]
    assert sorted(line.partition(" at ")[0] for line in lost) == sorted([str(root), str(copy)])
    with Store(root) as store:
        items = [item for item in store.log.scan() if isinstance(item, Extent)]
    (damage,) = (item for item in items if item.kind is ExtentKind.DAMAGE)
    assert all(f" at {damage.position}, {damage.size} bytes" in line for line in lost)


def test_bodies_that_fail_their_checksum_are_told(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    with Store(root) as store:
        hit, next_one = (store.message("logs", 0, offset) for offset in (3, 4))
    flip(min((root / "commitlog").iterdir()), hit.stored_body, hit.physical_offset)
    other = copy_of(root)
    log = min((other / "commitlog").iterdir())
    flip(log, next_one.stored_body, next_one.physical_offset)
    assert run([*command, str(root), str(other)]) == 1
    out, err = capsys.readouterr()
    assert "messages logs/0 from 4 on (the messages differ)" in out
    first = f"the first at {hit.physical_offset}"
    assert sorted(told(err)) == sorted(
        [f"{root}: 1 body fails its checksum, {first}", f"{other}: 2 bodies fail their checksums, {first}"]
    )


def test_a_store_that_cannot_be_read(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ends it; with --partial its pair is left out, and the answer says so."""
    for side in ("a", "b"):
        for name in ("1", "2"):
            (tmp_path / side / name).mkdir(parents=True)
            unpack("5.3.3-lmq", tmp_path / side / name).rename(tmp_path / side / name / "store")
    shutil.rmtree(tmp_path / "b" / "2" / "store" / "commitlog")
    words = [*command, str(tmp_path / "a/*/store"), str(tmp_path / "b/*/store")]
    assert run(words) == 5
    out, err = capsys.readouterr()
    assert out == "" and f"{tmp_path}/b/2/store" in told(err)[0]
    assert run([*words, "--partial", "--format", "json"]) == 1
    *_, unread = json.loads(capsys.readouterr().out)
    assert (unread["type"], unread["store"]) == ("unread", f"{tmp_path}/b/2/store")
    assert run([*command, str(tmp_path / "none"), str(tmp_path / "a/1/store")]) == 5
    assert "no such directory" in capsys.readouterr().err


@pytest.mark.parametrize("most", [1, 1_000_000])
def test_logs_that_are_no_copies_in_parts(
    shuffled: tuple[str, str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of parts meets, however much that is, or the logs are compared as a whole."""
    monkeypatch.setattr(pipeline_diff, "_SPLIT_BYTES", 70_000)
    monkeypatch.setattr(pipeline_diff, "_LEFT_MIN", most)
    monkeypatch.setattr(pipeline_diff, "WAITING_MAX", most)
    monkeypatch.setattr(tasks, "run_tasks", run_here)
    pairs = {"x": shuffled}
    given = pipeline_diff.tasks_of(pairs, {})
    assert len(given) > 3
    left = [pipeline_diff.compare_parts(task) is None for task in given]
    assert any(left) if most == 1 else not any(left)
    found = on_spark(cast("SparkSession", None), pairs, {})
    assert found == here(pairs, {}, lambda size: None)
    assert len(found[0]) == 2


def test_a_store_made_of_an_export_is_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor is one whose broker puts a checksum behind the properties of each message."""
    root = unpack("4.9.7-multipath", tmp_path)
    assert run(["export", str(root), "--to", str(tmp_path / "files"), "-q"]) == 0
    sizes = ["--set", "mappedFileSizeCommitLog=262144"]
    for name, more in (("same", []), ("other", ["--set", "enabledAppendPropCRC=true"])):
        new = str(tmp_path / name)
        words = ["put", new, "--from", str(tmp_path / "files"), "--keep-times", "--no-answers"]
        assert run([*words, "-q", "--as-broker", "5.3", *sizes, *more]) == 0
        capsys.readouterr()
        assert run(["diff", str(root), new, "--only", "messages"]) == 0
        assert capsys.readouterr() == ("The same (only messages were compared)\n", "")
    with Store(root) as one, Store(tmp_path / "other") as other:
        texts = [next(iter(store.messages())).properties for store in (one, other)]
    assert "__CRC32#" in texts[1] and "__CRC32#" not in texts[0]
