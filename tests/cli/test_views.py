"""`inspect --delays`, `--retries`, `--transactions`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqstore.cli.record_types import schema_of

from .. import stores
from .datadriven import run_here
from .json_schema import errors

VIEWS = ("delays", "retries", "transactions")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-killed", "5.3.3-lmq"])
def test_one_view(view: str, name: str, tmp_path: Path) -> None:
    root = str(stores.unpack(name, tmp_path))
    said = run_here(["inspect", root, f"--{view}", "--format", "json"])
    assert said.code == 0, said.stderr
    record = json.loads(said.stdout)
    assert list(errors(schema_of(view), record)) == []
    text = run_here(["inspect", root, f"--{view}", "--utc", "--now", "2026-12-01T00:00:00Z"])
    assert text.stdout.startswith(f"{view}: ")
    assert run_here(["inspect", root, f"--{view}", "--format", "csv"]).code == 0


def test_all_of_them(tmp_path: Path) -> None:
    root = str(stores.unpack("4.9.7-clean", tmp_path))
    said = run_here(["inspect", root, *(f"--{view}" for view in VIEWS), "--format", "ndjson"])
    assert [json.loads(line)["type"] for line in said.stdout.splitlines()] == list(VIEWS)


def test_what_is_no_store(tmp_path: Path) -> None:
    root = stores.unpack("4.9.7-clean", tmp_path)
    said = run_here(["inspect", str(root / "commitlog"), "--delays"])
    assert said.code == 2 and said.stderr.count("\n") == 1
    said = run_here(["inspect", str(root), "--delays", "--now", "soon"])
    assert said.code == 2 and said.stderr.count("\n") == 1
