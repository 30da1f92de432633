"""The lines and the manifest of docs/clusters.md are understood by the commands that they call."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from mqstore.cli.command_line import command_of
from mqstore.cli.pipeline import pipeline

TEXT = Path(__file__).parents[2].joinpath("docs/clusters.md").read_text(encoding="utf-8")


def block(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def manifest() -> Any:
    (found,) = block("json")
    return json.loads(found)


LINES = [shlex.split(line) for text in block("sh") for line in text.splitlines() if line.startswith("mqstore ")]
COMMANDS = [*LINES, manifest()["spec"]["template"]["spec"]["containers"][0]["command"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[2:6]))
def test_a_command_is_understood(command: list[str]) -> None:
    group: Any = command_of(pipeline)
    assert command[:2] == ["mqstore", "pipeline"]
    one = group.get_command(None, command[2])
    context = one.make_context(command[2], command[3:])
    assert context.params["master"]
    for setting in context.params["conf"] or ():
        assert setting.startswith("spark.") and "=" in setting


def test_the_manifest_mounts_what_it_names() -> None:
    pod = manifest()["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    claims = [text for text in container["command"] if ".options.claimName=" in text]
    assert [text.partition("=")[2] for text in claims] == ["stores"]
