"""`pipeline verify`: the answer of several stores. That it is the local one: tests/pipeline/test_verify.py."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from mqstore.pipeline import spark, verify
from mqstore.store.errors import Missing, StoreError
from mqstore.store.verify.verdict import Status, Verdict

from .datadriven import run_here
from .small_store import small_store

Found = dict[str, Verdict | StoreError]


def verdict(status: Status) -> Verdict:
    return Verdict(status, [], 1, 1, 0.0)


def checked(found: Found, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, list[str], str]:
    """Exit code, lines and errors of the command where the job finds that."""
    monkeypatch.setattr(spark, "spark_session", lambda *_, **__: nullcontext(None))
    monkeypatch.setattr(verify, "verify_on", lambda *_: list(found.items()))
    done = run_here(["pipeline", "verify", *found, *words])
    return done.code, done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ([], 0),
        ([Status.UNCLEAN], 3),
        ([Status.UNCLEAN, Status.DAMAGED], 1),
        ([Status.DAMAGED, None, Status.UNCLEAN], 5),
    ],
)
def test_the_worst_of_all_counts(
    others: list[Status | None], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that cannot be read is a line on stderr, each other one a line of the answer."""
    found: Found = {}
    for number, status in enumerate([Status.CLEAN, *others]):
        root = str(small_store(tmp_path / str(number), {"topic": "t", "body": "x", "store_timestamp": 1}))
        found[root] = Missing("no such directory", path=root) if status is None else verdict(status)
    exit_code, lines, err = checked(found, monkeypatch)
    gone = [root for root, one in found.items() if isinstance(one, StoreError)]
    assert exit_code == code
    assert [line.partition(": ")[0] for line in lines if line.startswith(str(tmp_path))] == [
        root for root in found if root not in gone
    ]
    assert err.count("no such directory") == len(gone) and all(root in err for root in gone)


@pytest.mark.parametrize(("words", "mode"), [([], "deep"), (["--quick"], "quick")])
def test_metrics_say_how_it_was_looked_and_what_cannot_be_read(
    words: list[str], mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(small_store(tmp_path / "s", {"topic": "t", "body": "x", "store_timestamp": 1}))
    none = str(tmp_path / "none")
    found: Found = {root: verdict(Status.CLEAN), none: Missing("no such directory", path=none)}
    code, lines, _ = checked(found, monkeypatch, *words, "--format", "prometheus")
    assert code == 5
    told = [line for line in lines if f'store="{none}"' in line]
    assert len(told) == 4 and told[-1].endswith('status="unreadable"} 1')
    assert {line.partition('mode="')[2].partition('"')[0] for line in lines if line[0] != "#"} == {mode}
