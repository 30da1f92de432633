"""Records as lines for people."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.cli.record_text import RecordText

from ..stores import unpack
from .hostile import TEXTS
from .printed import printed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack("5.3.3-batchcq", tmp_path)


@pytest.mark.parametrize(
    ("body", "said"), [("/w==", "(1 byte, not text)"), ("//8=", "(2 bytes, not text)"), ("////", "(3 bytes, ")]
)
def test_sizes_of_bodies(body: str, said: str, root: Path) -> None:
    (row,) = printed("get", root, "--topic", "TopicA", "--count", "1")
    del row["body"]
    assert said in RecordText(utc=True)(row | {"body_base64": body})


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_record_is_a_line_whatever_its_names_are(text: str) -> None:
    message = {"physical_offset": 7, "topic": text, "queue_id": 0, "queue_offset": 1, "store_timestamp": 1000}
    unit = {"topic": text, "queue_id": 0, "queue_offset": 1, "physical_offset": 7, "size": 100, "tags_code": 1}
    for record in (
        {"type": "message", **message, "tags": text, "keys": [text, text], "body": text, "body_error": text},
        {"type": "consume_queue_unit", **unit, "ext_address": -1, "ext_problem": text},
        {"type": "damage", "position": 7, "size": 1, "reason": text},
        {"type": "topic_config", "topic": text, "attributes": {text: text}},
    ):
        assert RecordText(utc=True)(record).isprintable(), record["type"]
