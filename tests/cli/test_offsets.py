"""`offsets` and `stats --expires`: what they print is what the schemas say, of compressed copies and many queues
too.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import pytest

from mqstore.cli.offsets import BY as BY_OF_OFFSETS
from mqstore.cli.record_types import columns_of, schema_of
from mqstore.cli.stats_answer import BY as BY_OF_STATS
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.disk.lock import StoreLock
from mqstore.store.inspect.stats_dimensions import DIMENSIONS
from mqstore.store.offsets.lag import BY, COLUMNS
from mqstore.store.session.apply import apply
from mqstore.store.session.journal import left_over

from .. import stores
from ..packing import pack
from ..store.offsets.moved import planned, positions
from ..store.put.faults import CountingFiles, Killed, KilledFiles
from .datadriven import run_here
from .held import held
from .json_schema import errors

_schema = cache(schema_of)
EXPIRES = ("--expires", "--disk-size", "1G", "--disk-used", "900M")


def records(*words: str | Path, codes: tuple[int, ...] = (0,)) -> list[dict[str, object]]:
    done = run_here([*map(str, words), "--format", "ndjson"])
    assert done.code in codes, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for record in found:
        assert list(errors(_schema(record["type"]), record)) == []
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["4.9.7-expired", "5.5.0-pop", "5.3.3-rocksdb", "4.3.1-killed"])
def test_records_are_what_their_schemas_say(name: str, tmp_path: Path) -> None:
    store = stores.unpack(name, tmp_path / "a")
    other = stores.unpack("5.3.3-clean", tmp_path / "b")
    for by in BY:
        records("offsets", store, "--by", by)
        records("offsets", store, "--by", by, "--quick", "--behind")
    records("offsets", store, "--compare", other, codes=(0, 1))
    records("offsets", store, "--merge", other, "--take", "min", codes=(0, 3))
    records("stats", store, *EXPIRES, codes=(0, 1))
    for by in ("topic", "kind", "size", "file"):
        records("stats", store, "--by", by, "--quick")
        records("stats", store, "--by", by, codes=(0, 1))


def test_names_are_told_once() -> None:
    """What the help names is what there is; columns are those of the schemas."""
    assert BY_OF_OFFSETS == BY
    assert set(BY_OF_STATS) == {"store", "queue", *DIMENSIONS}
    assert columns_of("group_offset")() == COLUMNS["queue"]
    assert set(columns_of("group_lag")()) == {*COLUMNS["topic"], *COLUMNS["group"]}


def test_a_compressed_copy(tmp_path: Path) -> None:
    """It says what the store does."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    words = ("offsets", store, "--by", "queue", "--now", "2026-11-21T00:00:00Z")
    before = records(*words)
    for path in sorted((store / "commitlog").iterdir()):
        pack(path)
    assert records(*words) == before


@pytest.mark.parametrize("words", [("--by", "topic"), ("--behind",), ("--quick",)], ids=" ".join)
def test_what_a_plan_does_not_take(words: tuple[str, ...], tmp_path: Path) -> None:
    done = run_here(["offsets", str(tmp_path), "--reset", "T@g=1", *words])
    assert (done.code, "--reset" in done.stderr) == (2, True)


def test_a_group_that_is_not_there_and_one_without_a_name(tmp_path: Path) -> None:
    """No such group is 1, nothing behind is 0; a position of "" is no delay level."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    for words, code in (
        (("-g", "nope"), 1),
        (("-g", "nope", "--behind"), 1),
        (("-t", "orders", "-g", "group-a_tags"), 0),
        (("--compare", str(store)), 0),
        (("--compare", str(store), "-g", "nope"), 1),
        (("--compare", str(store), "-g", "group-a_tags"), 0),
        (("--merge", str(store), "--take", "min", "-t", "nope"), 1),
        (("--merge", str(store), "--take", "min", "-t", "orders"), 0),
        (("--reset", "*@group-a_tags=latest", "-g", "nope", "--apply", "--yes"), 1),
    ):
        assert run_here(["offsets", str(store), *words]).code == code
    path = store / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable":{"orders@":{0:5}}}')
    found = records("offsets", store, "--by", "queue", "--topic", "orders")
    assert [row["group"] for row in found if row["offset"] == 5] == [""]


def test_a_mistyped_name_leads_to_the_near_one(tmp_path: Path) -> None:
    store = stores.unpack("5.3.3-clean", tmp_path)
    for words, near in (
        (("-g", "group-a_tag"), "group-a_tags"),
        (("-t", "order"), "orders"),
        (("--compare", str(store), "-g", "group-a_tag"), "group-a_tags"),
        (("--reset", "order@group-a_tags=7"), "orders"),
        (("--reset", "orders@group-a_tag=7"), "group-a_tags"),
        (("--merge", str(store), "--take", "min", "-t", "order"), "orders"),
    ):
        assert run_here(["offsets", str(store), *words]).stderr.endswith(f"; did you mean {near}?\n")
    assert "did you mean" not in run_here(["offsets", str(store), "-t", "zzzz"]).stderr
    told = run_here(["trace", str(store), "orders/0/1", "--group", "group-a_tag"]).stdout
    assert "group-a_tag: unknown: config/ names no such group; did you mean group-a_tags?" in told


def test_what_was_cut_off_is_ended_before_a_plan_is_made(tmp_path: Path) -> None:
    """Wherever it was: the same command carries it through, another one does it first, what only shows says it."""
    root, copy = stores.unpack("5.3.3-lmq", tmp_path / "a"), tmp_path / "b"
    move, wish = ["offsets", str(copy), "--reset"], "mqtt/0@lmq_group"
    shutil.copytree(root, copy)
    counting = CountingFiles()
    moved(copy, f"{wish}=1", counting)
    begun = [change for change, _ in counting.steps].index("unlink")
    for at in (3, begun - 12, begun - 8, begun - 3, begun - 1):
        shutil.rmtree(copy)
        shutil.copytree(root, copy)
        with pytest.raises(Killed):
            moved(copy, f"{wish}=1", KilledFiles(at))
        told = run_here([*move, f"{wish}=1"])
        assert told.code == 3 and "no plan is made" in told.stderr and f"recover {copy} --apply" in told.stderr, at
        again = run_here([*move, f"{wish}={at % 2 + 1}", "--apply", "--yes"])
        assert (again.code, "finished now" in again.stderr) == (0, True), again.stderr
        assert positions(copy)["offset", "lmq_group", "mqtt", 0] == at % 2 + 1
        assert left_over(Layout.open(copy)) is None
        assert run_here(["verify", str(copy), "--quick"]).code == 0


def moved(root: Path, wish: str, files: Files) -> None:
    found = planned(root, wish)
    apply(Layout.open(root), found.plan, lambda: found.plan, files, command="offsets")


def test_queues_behind_the_log_are_told_unless_a_broker_runs(tmp_path: Path) -> None:
    """A running broker writes units right behind their records, without a start."""
    root = stores.unpack("5.5.0-lmq-poison", tmp_path)
    assert "the queues are behind the log, from 9176 on: bytes and" in run_here(["offsets", str(root)]).stderr
    with held(root):
        used = run_here(["offsets", str(root)])
    assert used.code == 0 and "behind the log" not in used.stderr


def test_only_a_plan_needs_queues_that_are_not_behind_the_log(tmp_path: Path) -> None:
    """As the help has it: exit code 3 of --reset and --merge, with and without --apply."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "consumequeue")
    shown = run_here(["offsets", str(root)])
    assert shown.code == 0 and "the ends of queues are not known" in shown.stderr
    for plan in (["--reset", "*@group-a-retry=earliest"], ["--merge", str(root), "--take", "max"]):
        for carried_out in ([], ["--apply", "--yes"]):
            refused = run_here(["offsets", str(root), *plan, *carried_out])
            assert refused.code == 3 and "the queues are behind the log" in refused.stderr
        with StoreLock.take(root / "lock", Files()):  # which may write them yet
            refused = run_here(["offsets", str(root), *plan, "--apply", "--yes"])
        assert refused.code == 4 and "in use" in refused.stderr
