"""Files of `config/` that are hostile, or broken."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from ... import stores
from ..datadriven import run_here
from ..printed import dumped

HOSTILE = {
    "escapes": '{"topicConfigTable":{"a\\u001b]0;x\\u0007\\u202e":{"perm":6,"\\u001b[31m":1}}}',
    "formulas": '{"topicConfigTable":{"=1+1":{"topicName":"@x","perm":6,"order":"=2"}}}',
    "twice": '{"topicConfigTable":{"a":{"perm":1}},"topicConfigTable":{"b":{"perm":6}}}',
    "numbers": '{"topicConfigTable":{"a":{"perm":' + "9" * 5000 + ',"topicSysFlag":1e999}}}',
    "types": '{"topicConfigTable":[1,{"a":2}],"dataVersion":"x"}',
    "surrogates": '{"topicConfigTable":{"\\ud800":{"perm":6}}}',
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_json_is_shown_escaped(case: str, tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text(HOSTILE[case])
    for form in ("text", "json", "ndjson", "csv"):
        result = run_here(["dump", str(path), "--format", form])
        assert result.code == 0, result.stderr
        shown = result.stdout + result.stderr
        assert not set(shown) & {"\x1b", "\x07", "\u202e"}
        if form == "json":
            json.loads(result.stdout)
        for row in csv.reader(io.StringIO(result.stdout)) if form == "csv" else ():
            assert not any(cell.startswith(("=", "@", "+")) for cell in row)
    assert run_here(["inspect", str(path)]).code == 0


def test_a_broken_file_is_told_with_its_place(tmp_path: Path) -> None:
    config = stores.unpack("5.3.3-clean", tmp_path) / "config"
    path = config / "topics.json"
    path.write_bytes(path.read_bytes()[:1000])
    *read, damage = dumped(path)
    assert any(record["type"] == "topic_config" for record in read)
    assert (damage["type"], damage["position"], damage["size"]) == ("damage", 1000, 1)
    assert "the file ends" in damage["reason"], "what is missing counts as a byte"
    result = run_here(["dump", str(path)])
    assert "topics.json.bak, which is whole" in result.stderr
    shutil.copyfile(config / "topics.json.bak", tmp_path / "topics.json")
    assert dumped(tmp_path / "topics.json")
    told = run_here(["inspect", str(config.parent)]).stdout
    assert "topics.json: broken at byte" in told and "a broker reads topics.json.bak" in told
