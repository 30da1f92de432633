"""Versions of a broker that are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.broker.profiles import VERSIONS

from .. import stores
from .datadriven import run_here


@pytest.mark.parametrize("version", ["9.9", "3.0", "6.0.0", "5.7", "", "newest", "5"])
@pytest.mark.parametrize("command", ["recover", "verify", "repair", "put"])
def test_versions_that_no_profile_stands_for(command: str, version: str, tmp_path: Path) -> None:
    words = [command, str(tmp_path), *(["T", "b"] if command == "put" else [])]
    option = "--as-broker" if command == "put" else "--broker-version"
    result = run_here([*words, f"{option}={version}"])
    assert (result.code, result.stdout) == (2, "")
    assert ", ".join(VERSIONS) in result.stderr


@pytest.mark.parametrize(
    ("line", "version", "nearest"),
    [
        ("recover --broker-version", "5.2", "5.1"),
        ("verify --as-broker", "5.6", "5.5.1"),
        ("repair --broker-version", "4.5.0", "4.3"),
        ("salvage --dry-run --as-broker", "4.10", "4.9"),
    ],
)
def test_versions_near_a_profile(line: str, version: str, nearest: str, tmp_path: Path) -> None:
    """The nearest one is taken, and that is said, by either name of the option."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    result = run_here([*line.split(), version, str(root)])
    assert f"no profile of {version}: that of {nearest} is the nearest" in result.stderr
