"""What the real classes take of an odd broker.conf, against `disk/broker_conf.py`."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from mqstore.store.disk import broker_conf
from mqstore.store.disk.broker_conf import parse_properties

from ..store.disk.test_broker_conf import KINDS, ODD
from .oracle import VERSIONS, compiled, java, missing

pytestmark = pytest.mark.interop

SOURCES = sorted((Path(__file__).parent / "java" / "config").glob("*.java"))
MALFORMED = [b"a=\\u00zz", b"a=\\u004", b"\\u=1"]
LINES = [
    b"",
    b"a\\\\\\u0041=1\n#\\uzz\n!\\u",
    b"a \\= b\\\n  \\\n c\r\r\n d:=e\\",
    b"\\ x = y \\  \n\xa0=\xa0",
    b"a=1\na",
]


def read(version: str, texts: list[bytes]) -> list[dict[tuple[str, str], str] | None]:
    """What a version makes of each text, by type and name; None where no broker starts with it."""
    command = [*java(version, compiled(version, SOURCES), heap="1g"), "config.BrokerConf"]
    lines = "".join(base64.b64encode(text).decode() + "\n" for text in texts)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(texts), done.stderr
    return [None if answer == "-" else dict(map(_option, answer.split())) for answer in answers]


def _option(word: str) -> tuple[tuple[str, str], str]:
    name, _, value = base64.b64decode(word).decode(errors="surrogateescape").partition("=")
    kind, _, name = name.partition(" ")
    return (kind, name), value


@pytest.mark.parametrize("version", VERSIONS)
def test_values_are_those_that_this_broker_takes(version: str) -> None:
    if why := missing(version):
        pytest.skip(why)
    column = 0 if version < "4.5.2" else 1 if version < "5.2" else 2
    usual, *answers = read(version, [b"", *(written for written, *_ in ODD)])
    assert usual is not None
    for (written, option, *wanted), found in zip(ODD, answers, strict=True):
        key = (KINDS[option], option)
        if key not in usual:
            key = (key[0], option.replace("mapped", "maped"))
        if key in usual:
            assert found is not None
            value = wanted[column]
            shown = str(value).lower() if isinstance(value, bool) else str(value)
            assert found[key] == (usual[key] if value is None else shown), written


@pytest.mark.parametrize("version", VERSIONS)
def test_lines_and_types_are_those_of_this_broker(version: str) -> None:
    if why := missing(version):
        pytest.skip(why)
    texts = [*LINES, *(written for written, *_ in ODD)]
    for text, found in zip(texts, read(version, texts), strict=True):
        assert found is not None
        written = {name: value for (kind, name), value in found.items() if kind == "written"}
        assert parse_properties(text.decode("iso-8859-1")) == written, text
    assert read(version, MALFORMED) == [None] * len(MALFORMED)
    kinds = {name.replace("maped", "mapped"): kind for kind, name in found or {} if kind != "written"}
    assert {kinds[name] for name in broker_conf._INT_OPTIONS & kinds.keys()} == {"int"}
