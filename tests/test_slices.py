"""The slices of the slow tests: a share that is never empty, the same for the same seed."""

from __future__ import annotations

import pytest

from . import slices


def test_share_is_never_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.01)
    assert [slices.share(n) for n in (1, 99, 200, 200_000)] == [1, 1, 2, 2000]


def test_pick_is_the_same_for_the_same_seed_and_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 0.1)
    cases = list(range(1000))
    first = slices.pick(cases, "one")
    assert first == slices.pick(cases, "one") == sorted(first)
    assert len(first) == 100
    assert first != slices.pick(cases, "two")
    monkeypatch.setattr(slices, "SEED", slices.SEED + 1)
    assert first != slices.pick(cases, "one")


def test_a_few_of_many_are_spread_from_the_first_to_the_last() -> None:
    assert slices.spread(8, 1) == {0}
    assert slices.spread(8, 2) == {0, 7}
    assert slices.spread(9, 3) == {0, 4, 8}
    assert slices.spread(2, 5) == {0, 1}
    assert slices.spread(0, 2) == set()


def test_a_whole_run_picks_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 1.0)
    assert slices.pick("abc", "x") == ["a", "b", "c"]
    assert slices.pick([], "x") == []
