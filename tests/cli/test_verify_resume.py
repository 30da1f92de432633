"""`verify --resume`: runs that end early and go on find what one run finds, and alarm about nothing."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest

from mqstore.cli.verify_resume import Resume
from mqstore.store.errors import InvalidInput
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Verdict

from .. import slices
from ..stores import ALL, unpack

FAST = ("5.3.3-killed-page", "5.3.3-clean-no-queues", "4.9.7-killed-queue")
NOT_KEPT = {"I-031", "I-051", "I-053", "I-128", "I-129", "I-133", "I-136"}
"""What a run that goes on says it cannot tell."""


def _in_one_run(root: Path) -> Verdict:
    with StoreReader(root) as store:
        return verify(store)


def _up_to(root: Path, scope: Scope, cut: int) -> Verdict:
    """A run that is asked to stop when it has come that far."""
    reached = 0

    def note(position: int) -> None:
        nonlocal reached
        reached = max(reached, position)

    with StoreReader(root) as store:
        return verify(store, scope, progress=note, stop=lambda: reached >= cut)


def _in_parts(root: Path, state: Path, cuts: list[int]) -> Verdict:
    """A run that is stopped behind each of the positions, then one to the end."""
    for cut in [*cuts, sys.maxsize]:
        saved = Resume.read(state, root, {})
        scope = Scope(start=saved.position, earlier=saved.facts)
        verdict = saved.joined(_up_to(root, scope, cut))
        saved.write(verdict)
    assert not state.exists()
    return verdict


def _found(verdict: Verdict) -> set[tuple[object, ...]]:
    """What was found and where, without how findings in a row were cut."""
    return {
        (f.code, f.severity, f.unclean, f.path, f.topic, f.queue_id) for f in verdict.findings if f.code not in NOT_KEPT
    }


def _check(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    whole = _in_one_run(root)
    with StoreReader(root) as store:
        start, end = store.log_files.start, store.log_files.end
    random = slices.rng(f"resume {name}")
    cuts = sorted(random.sample(range(start, end), 2))
    parts = _in_parts(root, tmp_path / "state", cuts)
    assert parts.status is whole.status, (name, cuts)
    assert _found(parts) == _found(whole), (name, cuts)
    assert parts.records == whole.records, (name, cuts)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", FAST)
def test_runs_that_go_on_find_what_one_finds(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


def test_all_that_is_good_behind_damage_of_an_earlier_run_counts(tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    with min((root / "commitlog").iterdir()).open("r+b") as file:
        for at in (30_000, 200_000):
            file.seek(at)
            file.write(bytes(300))

    def behind(verdict: Verdict) -> int:
        return sum(finding.count for finding in verdict.findings if finding.code == "I-042")

    whole = _in_one_run(root)
    parts = _in_parts(root, tmp_path / "state", [60_000, 120_000])
    assert behind(parts) == behind(whole) > 300


@pytest.mark.slow
@pytest.mark.parametrize("name", slices.pick(ALL, "resume"))
def test_runs_over_any_store_find_what_one_finds(name: str, tmp_path: Path) -> None:
    _check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", slices.pick(ALL, "first part"))
def test_a_part_of_a_store_raises_no_alarm(name: str, tmp_path: Path) -> None:
    """What a run that was stopped says is what the whole run says, as bad and no worse."""
    root = unpack(name, tmp_path)
    whole = {(f.code, f.path, f.severity) for f in _in_one_run(root).findings}
    random = slices.rng(f"part of {name}")
    with StoreReader(root) as store:
        cut = random.randrange(store.log_files.start, store.log_files.end)
    part = _up_to(root, Scope(), cut)
    assert {(f.code, f.path, f.severity) for f in part.findings} - whole == set(), cut


@pytest.mark.parametrize("name", ["5.3.3-dledger", "4.9.7-killed-bit-restarted"])
def test_a_run_that_ends_at_any_item_of_the_log_says_nothing_of_what_follows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a BLANK the next file may have records, behind a range without some those that a start has cut off."""
    root = unpack(name, tmp_path)
    scope = Scope(groups=frozenset({"commit_log"}))
    with StoreReader(root) as store:
        whole = _found(verify(store, scope))
        for number in range(20):
            answers = chain([""] * number, repeat("interrupted"))
            monkeypatch.setattr(VerifyContext, "stopped", lambda _, answers=answers: next(answers))
            ended = verify(store, scope)
            assert _found(ended) - whole == set(), number
            if ended.stopped_at is None:
                return
    pytest.fail("20 answers do not reach the end of the log")


def test_other_options_are_refused(tmp_path: Path) -> None:
    root, state = unpack("5.3.3-killed-page", tmp_path), tmp_path / "state"
    saved = Resume.read(state, root, {"quick": True})
    with StoreReader(root) as store:
        saved.write(verify(store, stop=lambda: True))
    assert json.loads(state.read_text())["asked"] == {"quick": True}
    with pytest.raises(InvalidInput, match="other options"):
        Resume.read(state, root, {"quick": False})
    assert Resume.read(state, root, {"quick": True}).position == 0


def test_two_processes_that_are_cut_tell_no_message_twice(tmp_path: Path) -> None:
    """One of them is ahead of the other: what it has seen behind is read once more."""
    root, state = unpack("5.3.3-clean-no-queues", tmp_path), tmp_path / "state"
    whole = _in_one_run(root)
    saved = Resume.read(state, root, {})
    with StoreReader(root) as store:
        half = verify(store, jobs=2, stop=lambda: True)
    behind = replace(half, facts=replace(whole.facts, stopped_at=half.stopped_at))
    saved.write(behind)
    parts = _in_parts(root, state, [])
    count = {f.code: f.count for f in parts.findings}
    assert count["I-114"] == {f.code: f.count for f in whole.findings}["I-114"]
