"""What the real classes read of a configuration file's text, against `settings/parse.py`."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.settings.parse import parse

from ..store.settings.test_parse import REFUSED, TAKEN
from .oracle import VERSIONS, compiled, java, missing

pytestmark = pytest.mark.interop

SOURCES = sorted((Path(__file__).parent / "java" / "config").glob("*.java"))


def read(version: str, texts: list[str]) -> list[Any]:
    """What a version makes of each text; None where it refuses it."""
    command = [*java(version, compiled(version, SOURCES), heap="1g"), "config.ConfigJson"]
    lines = "".join(base64.b64encode(text.encode()).decode() + "\n" for text in texts)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(texts), done.stderr
    return [None if answer == "-" else parse(base64.b64decode(answer) or b"null").value for answer in answers]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_taken_and_what_is_refused(version: str) -> None:
    if why := missing(version):
        pytest.skip(why)
    found = dict(zip([*TAKEN, *REFUSED], read(version, [*TAKEN, *REFUSED]), strict=True))
    for text, value in TAKEN.items():
        assert found[text] == value, text
    for text in REFUSED:
        assert found[text] is None, text
