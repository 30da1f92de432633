"""A store with one of the damages of `tests/recovery_cases`, for command lines."""

from __future__ import annotations

from pathlib import Path

from .. import recovery_cases

SIZES = [f"--set={name}={value}" for name, value in recovery_cases.CONFIG.items()]


def of_case(kind: str, work: Path) -> tuple[Path, list[str]]:
    """A damaged store, and the options that go with it."""
    case = recovery_cases.case_of(kind)
    return recovery_cases.damaged(case, work), [*SIZES, "--broker-version", case["version"]]
