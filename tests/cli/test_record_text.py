"""Records as lines for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.cli.record_text import RecordText

from ..stores import unpack
from .printed import printed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack("5.3.3-batchcq", tmp_path)


@pytest.mark.parametrize(
    ("body", "said"),
    [("/w==", "(1 byte, not text)"), ("//8=", "(2 bytes, not text)"), ("////", "(3 bytes, ")],
)
def test_sizes_of_bodies(body: str, said: str, root: Path) -> None:
    (row,) = printed("get", root, "--topic", "TopicA", "--count", "1")
    del row["body"]
    assert said in RecordText(utc=True)(row | {"body_base64": body})
