"""A store that a killed command has left half made: nobody takes it for whole, at whatever step it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.damage.scenario import drill
from mqstore.store.damage.scenarios import scenario_of
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.disk.lock import mark_of
from mqstore.store.errors import InvalidInput, Missing, NotAStore, Refused, Unclean
from mqstore.store.inspect.description import describe
from mqstore.store.output.stage import Stage, one_job
from mqstore.store.put.writer import StoreWriter
from mqstore.store.recover.recovery import analyze
from mqstore.store.repair.convert import convert
from mqstore.store.salvage.runs import images_of
from mqstore.store.salvage.salvage import LayoutKind, SalvageRequest, check_target, look, write
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.session.journal import barriers, left_over
from mqstore.store.session.undo import undo
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import at_first_sight, verify
from mqstore.store.verify.verdict import first_sentence

from ...cli.datadriven import run_here
from ...slices import spread
from ...stores import unpack
from ..put.faults import CountingFiles, Killed, KilledFiles
from ..salvage.images import SMALL

pytestmark = pytest.mark.long

Make = Callable[[Path, Path, Files], object]


def salvage(kind: LayoutKind) -> Make:
    def make(root: Path, target: Path, files: Files) -> None:
        wanted = SalvageRequest(config=SMALL.with_set(["mappedFileSizeCommitLog=262144"]), layout=kind)
        images = images_of([root / "commitlog"])
        check_target(images, target, wanted)
        done = look([root / "commitlog"], images.files, wanted, lambda _step, _size: None)
        with done.sources:
            write(done, target, wanted, files, lambda _step, _size: None)

    return make


def damage(root: Path, target: Path, files: Files) -> None:
    with StoreReader(root) as store:
        drill(store, target, scenario_of("flip-bit"), 1, files)


MAKERS: dict[str, tuple[str, Make, bool]] = {
    "convert": ("5.3.3-dledger", lambda root, target, files: convert(Layout.open(root), target, None, files), True),
    "original": ("5.3.3-killed-page", salvage(LayoutKind.ORIGINAL), True),
    "compact": ("5.3.3-killed-page", salvage(LayoutKind.COMPACT), False),
    "damage": ("5.3.3-clean", damage, False),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_killed_at_any_step(maker: str, tmp_path: Path) -> None:
    name, make, barred = MAKERS[maker]
    root = unpack(name, tmp_path)
    counted = CountingFiles()
    make(root, tmp_path / "whole", counted)
    assert not (tmp_path / "whole" / ".mqstore").exists()
    assert left_over(Layout.open(tmp_path / "whole")) is None
    *_, over = (number for number, step in enumerate(counted.steps) if step == ("unlink", mark_of(root).name))
    stores = 0
    for at in sorted({*range(8), *spread(over + 1, 24)}):
        target = tmp_path / str(at)
        with pytest.raises(Killed):
            make(root, target, KilledFiles(at))
        try:
            layout = Layout.open(target)
        except (Missing, NotAStore):
            continue
        stores += 1
        left = left_over(layout)
        assert left is not None and str(left).startswith("half made"), at
        assert left.command(layout) == f"mv {target} {target}-half"
        with layout.commit_log_files() as log:
            assert barriers(layout) or not log.files or not barred or at > over // 2, at
        with pytest.raises(InvalidInput) as again:
            make(root, target, Files())
        assert "interrupted" in str(again.value)
    assert stores > 20


def test_all_say_so(tmp_path: Path) -> None:
    root, target = unpack("5.3.3-dledger", tmp_path), tmp_path / "plain"
    with pytest.raises(Killed):
        MAKERS["convert"][1](root, target, KilledFiles(60))
    layout = Layout.open(target)
    with StoreReader(target) as store:
        for scope in (Scope(), Scope(quick=True)):
            assert first_sentence(verify(store, scope), target).startswith("Do not start a broker: half made")
    seen = describe(layout)
    assert first_sentence(at_first_sight(seen), target).startswith("Do not start a broker: half made")
    plan = analyze(layout).plan
    assert plan is not None
    with pytest.raises(Refused, match="half made"):
        apply(layout, plan, lambda: plan, Files())
    with pytest.raises(Unclean, match="half made"):
        StoreWriter.open(target)
    with pytest.raises(Refused, match="half made"):
        undo(layout, None, Files())
    assert barriers(layout)
    assert mark_of(target).exists()


def test_half_of_a_store_is_moved_away_once(tmp_path: Path) -> None:
    """Then there is room for a whole one. What is in the half can be salvaged: no repair makes a store of it."""
    root, moved = unpack("4.3.1-clean", tmp_path), tmp_path / "new-half"
    mark_of(root).parent.mkdir()
    mark_of(root).touch()
    root.rename(moved)
    for place in (moved, moved / ".." / "new-half"):
        left = left_over(Layout.open(place))
        assert left is not None and "Make the store again from its source, in a new directory" in str(left)
        assert left.command(Layout.open(place)) == f"mqstore salvage {place} --to {place}-salvaged"
    told = run_here(["repair", str(moved), "--all"])
    assert "A change was interrupted" not in told.stdout
    assert told.stdout.endswith(f"Next: mqstore salvage {moved} --to {moved}-salvaged\n")
    assert "continues it" not in run_here(["recover", str(moved)]).stdout
    done = run_here(["salvage", str(moved), "--to", f"{moved}-salvaged"])
    assert done.code == 0
    assert left_over(Layout.open(tmp_path / "new-half-salvaged")) is None


@pytest.mark.parametrize("manifest", ["{}", "[1]", "[" * 100_000, "{", '{"job": {"files": ["a"]}}'])
def test_half_of_a_job_that_nobody_can_name(manifest: str, tmp_path: Path) -> None:
    """As of a write in Spark; or somebody has changed what it was."""
    root = unpack("5.3.3-clean", tmp_path)
    stage = Stage.begin(root, Files())
    (root / "config").rename(stage.tree / "config")
    assert left_over(Layout.open(root)) is None, "it was not sealed"
    (stage.folder / "manifest.json").write_text(manifest)
    left = left_over(Layout.open(root))
    assert left is not None and str(left).startswith("what wrote it was interrupted while it published this store")
    assert left.command(Layout.open(root)) == f"mv {root} {root}-half"
    with one_job(root, Files()):
        assert left_over(Layout.open(root)) is None, "it is at work"
    stage.publish()
    assert left_over(Layout.open(root)) is None, "all of it is there"


@pytest.mark.parametrize("place", ["half-made", "rebuild.lock"])
def test_a_pipe_in_the_place_of_a_lock(place: str, tmp_path: Path) -> None:
    """Nobody has it; what is there is read all the same."""
    root = unpack("5.3.3-clean", tmp_path)
    (root / ".mqstore").mkdir()
    os.mkfifo(root / ".mqstore" / place)
    left = left_over(Layout.open(root))
    assert (left is not None and str(left).startswith("half made")) is (place == "half-made")


def test_half_of_a_job_with_a_pipe_as_manifest(tmp_path: Path) -> None:
    """Nobody waits for it."""
    root = unpack("5.3.3-clean", tmp_path)
    stage = Stage.begin(root, Files())
    (root / "config").rename(stage.tree / "config")
    os.mkfifo(stage.folder / "manifest.json")
    left = left_over(Layout.open(root))
    assert left is not None and str(left).startswith("what wrote it was interrupted")


def test_who_is_at_work_is_named(tmp_path: Path) -> None:
    """Not as one that was cut off, and to itself not at all."""
    root, target = unpack("5.3.3-clean", tmp_path), tmp_path / "new"
    lines = (
        "import sys; from pathlib import Path",
        "from mqstore.store.disk.files import Files; from mqstore.store.disk.lock import new_directory",
        "with new_directory(Path(sys.argv[1]), Files()): print('there', flush=True); input()",
    )
    words = [sys.executable, "-c", "\n".join(lines), str(target)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "there\n"
        (target / "commitlog").mkdir()
        left = left_over(Layout.open(target))
        assert left is not None and str(left) == f"half made: process {process.pid} is making this store"
        (target / "commitlog").rmdir()
        process.stdin.write("\n")
    assert process.returncode == 0
    assert list(target.iterdir()) == []
    assert left_over(Layout.open(root)) is None
