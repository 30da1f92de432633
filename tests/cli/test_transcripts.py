"""Every transcript in tests/testdata, and the guides, which are transcripts, too."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from . import datadriven

pytestmark = pytest.mark.long

TESTDATA = Path(__file__).parents[1] / "testdata"
GUIDES = Path(__file__).parents[2] / "docs" / "guides"
TRANSCRIPTS = sorted(path for path in TESTDATA.iterdir() if path.is_file())
TRANSCRIPTS += sorted(path for path in GUIDES.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.name)
def test_transcript(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rewrite: bool) -> None:
    """What the commands print is what the transcript says."""
    if "| jq" in path.read_text(encoding="utf-8") and shutil.which("jq") is None:
        pytest.skip("needs jq")
    datadriven.run_transcript(path, datadriven.World(tmp_path, monkeypatch), rewrite)


def test_parse_gives_back_what_it_read() -> None:
    """Source lines and expected lines together are the file."""
    text = "Comment.\n\n  $ one \\\n  > two\n  out\n    indented\n  2> err\n  [5]\nMore.\n  $ three\n"
    steps = list(datadriven.parse(text))
    assert [step.command for step in steps] == ["one \\\ntwo", "three"]
    assert steps[0].expected == ["out", "  indented", "2> err", "[5]"]
    rebuilt = [line for s in steps for line in (*s.source, *("  " + e for e in s.expected))]
    assert "\n".join(rebuilt) + "\n" == text
