"""Tasks that go together, and what they answer, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.pipeline import tasks
from mqstore.pipeline.tasks import SHARE_BYTES, TASK_BYTES, TaskReader, answer_of, shares_of, stores_among, told
from mqstore.store.disk.byte_reader import at_rate, note_expired, noting, reading_rate
from mqstore.store.errors import NoSpace, StoreError, Unreadable


def test_small_tasks_share_one_and_large_ones_come_first() -> None:
    sizes = [*([1 << 20] * 145), 3 << 30, 700 << 20]
    shares = shares_of(sizes, 2)
    assert shares[:2] == [[145], [146]], "large ones first, each alone"
    assert sorted(number for some in shares for number in some) == list(range(147))
    assert len(shares) < 10
    assert shares_of([], 2) == []


@given(st.lists(st.integers(0, 1 << 32), max_size=60), st.integers(1, 16))
def test_every_task_is_in_one_share_and_none_is_too_large(sizes: list[int], cores: int) -> None:
    shares = shares_of(sizes, cores)
    assert sorted(number for some in shares for number in some) == list(range(len(sizes)))
    for some in shares:
        cost = sum(sizes[number] + TASK_BYTES for number in some)
        assert len(some) == 1 or cost <= SHARE_BYTES
    largest = [max(sizes[number] for number in some) for some in shares]
    assert largest == sorted(largest, reverse=True)


def fails(error: BaseException) -> Any:
    def task(_: object) -> Any:
        raise error

    return task


@pytest.mark.parametrize("error", [Unreadable("why", path="/a", offset=7), NoSpace("full"), StoreError("x: y")])
def test_the_error_of_a_store_comes_back_as_it_was(error: StoreError) -> None:
    """Through JSON; its kind counts for the exit code, its text is for people."""
    found = told(json.loads(json.dumps(answer_of(fails(error), {}))))
    assert (type(found), str(found)) == (type(error), str(error))
    assert told(answer_of(lambda task: task["x"], {"x": [1, None]})) == [1, None]


def test_what_has_expired_is_noted_where_the_answer_arrives() -> None:
    """Also of a task that has failed."""

    def task(error: StoreError | None) -> None:
        note_expired("/log", 8192)
        if error is not None:
            raise error

    for error in (None, StoreError("why")):
        answer = json.loads(json.dumps(answer_of(task, error)))  # type: ignore[arg-type]
        with noting() as noted:
            told(answer)
        assert noted.expired == {"/log": 8192}
    assert answer_of(lambda _: 1, {}) == {"answer": 1}


def test_what_is_no_error_of_a_store_is_none() -> None:
    """Neither a defect of ours, nor a word that names something else than an error."""
    with pytest.raises(ZeroDivisionError):
        answer_of(fails(ZeroDivisionError()), {})
    for name in ("NoSuchError", "PathLike", "StoreError", ""):
        found = told({"error": [name, "why", None]})
        assert type(found) is StoreError and str(found) == "why"


def test_the_rate_of_the_command_limits_what_each_task_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of the process in which the task runs, which has none."""
    monkeypatch.setattr(tasks, "named", lambda name: lambda task: reading_rate())
    with at_rate(1024):
        reader = TaskReader("stats:count", [{"root": "a"}])
    (row,) = next(reader.read(0)).to_pylist()
    assert told(json.loads(row["answer"])) == 1024


def test_tasks_of_one_store_have_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of its first task; bytes of an answer go beside the JSON."""
    given_tasks = [{"root": root, "n": n} for n, root in enumerate("abacb")]
    assert stores_among(given_tasks) == {"a": 0, "b": 1, "c": 3}

    def function(task: dict[str, Any]) -> Any:
        if task["n"] == 3:
            raise Unreadable("gone")
        return b"\xff" if task["n"] == 2 else task["n"]

    monkeypatch.setattr(tasks, "named", lambda name: function)
    reader = TaskReader("stats:count", given_tasks, [[3, 0], [2], [1, 4]])
    rows = [row for share in range(3) for batch in reader.read(share) for row in batch.to_pylist()]
    assert [(row["task"], row["store"]) for row in rows] == [(3, 3), (0, 0), (2, 0), (1, 1), (4, 1)]
    answers = {row["task"]: (json.loads(row["answer"]), row["data"]) for row in rows}
    assert answers[2] == ({}, b"\xff") and answers[4] == ({"answer": 4}, None)
    assert str(told(answers[3][0])) == "gone"
