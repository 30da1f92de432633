"""A disk without one free byte: one line and nothing changed, or all of it with the journal elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full_disk import run_full

pytestmark = pytest.mark.long

KILLED, NEEDS_INDEX = "5.3.3-killed", "5.3.3-killed-bit"


@pytest.mark.slow
def test_a_full_disk_is_recovered_with_the_journal_on_another_one(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    elsewhere = ["--journal", str(journal)]
    beside, there, then, back = run_full(
        KILLED,
        [
            ["recover", "STORE", "--apply", "--yes"],
            ["recover", "STORE", "--apply", "--yes", *elsewhere],
            ["verify", "STORE"],
            ["undo", "STORE", "--yes", *elsewhere],
        ],
        tmp_path,
    )
    assert beside.code == 5 and beside.same
    assert "0 free" in beside.err and "--journal DIR" in beside.err
    assert len(beside.err.splitlines()) == 1
    assert there.code == 0 and there.out.startswith("Done: recovered, no message lost"), there.err
    assert then.code == 0, then.out
    assert back.code == 0 and back.same, back


def test_new_index_files_need_room(tmp_path: Path) -> None:
    """They cannot lie elsewhere: said before anything is changed."""
    journal = tmp_path / "journal"
    journal.mkdir()
    command = ["recover", "STORE", "--apply", "--yes", "--journal", str(journal)]
    (answer,) = run_full(NEEDS_INDEX, [command], tmp_path)
    assert answer.code == 5 and answer.same
    assert "bytes needed for new files, 16 MiB of these in reserve, 0 free" in answer.err
    assert "--journal" not in answer.err


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "command",
    [
        ["put", "STORE", "T", "hello", "--no-topic-config"],
        ["salvage", "STORE", "--to", "STORE-salvaged"],
        ["damage", "STORE", "--to", "STORE-damaged", "--scenario", "flip-bit"],
        ["export", "STORE", "--to", "STORE-exported"],
        ["export", "STORE", "--to", "STORE-exported", "--format", "json"],
        ["report", "STORE", "--to", "STORE-report.html"],
    ],
    ids=lambda command: " ".join(command),
)
def test_who_writes_says_so_and_changes_nothing(command: list[str], tmp_path: Path) -> None:
    (answer,) = run_full("5.3.3-clean", [command], tmp_path)
    assert answer.code == 5 and answer.same, answer
    lines = [line for line in answer.err.splitlines() if "is quicker" not in line]
    assert "No space left on device" in answer.err and len(lines) == 1
    assert answer.beside == ["5.3.3-clean", "filler"], "nothing half made"
    assert "cannot write" in answer.err and "5.3.3-clean" in answer.err, "with its path"
    assert command[0] not in ("salvage", "damage") or " was removed again" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize("job", ["export", "rebuild"])
def test_a_job_of_the_pipeline_leaves_nothing(job: str, tmp_path: Path) -> None:
    command = ["pipeline", job, "STORE", "--to", "STORE-new"]
    (answer,) = run_full("5.3.3-clean", [command], tmp_path)
    assert (answer.code, answer.out, answer.same) == (5, "", True), answer
    lines = [line for line in answer.err.splitlines() if "is quicker" not in line]
    assert "No space left on device" in answer.err and len(lines) == 1
    assert answer.beside == ["5.3.3-clean", "filler"], "nothing half made"
