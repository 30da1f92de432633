"""consumequeue_ext: `put` writes the bytes that the real broker writes for the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.slices import SEED, rng

from .conftest import Judge
from .served import SIZES, as_broker, broker_put, loaded, mqstore, put, settings
from .test_same_bytes import HOST, difference, files, messages_of, random_message

pytestmark = pytest.mark.interop

CONFIG: dict[str, Any] = SIZES | {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 130}


def ext(root: Path) -> dict[str, bytes]:
    """Path below consumequeue_ext → bytes."""
    return files(root / "consumequeue_ext", numbered=False)


def test_ext_is_the_brokers_byte_for_byte(judge: Judge, version: str, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    chance = rng(f"ext {version}")
    messages = [random_message(number, chance, version) for number in range(60)]
    half = len(messages) // 2
    messages[half - 1]["sys_flag"] = 0  # in a queue: 4.9.7 dispatches again what lies behind the queues
    for part in (messages[:half], messages[half:]):  # each life of a broker begins without memory
        broker_put(judge, theirs, part, CONFIG)
    dumped = mqstore("dump", theirs, "--format", "ndjson", "--raw", *settings(CONFIG))
    for lines in (messages_of(dumped)[:half], messages_of(dumped)[half:]):
        put(ours, lines, CONFIG, "--keep-times", "--store-host", HOST, *as_broker(version))
    assert not difference(theirs, ours), f"seed {SEED}"
    assert ext(theirs) == ext(ours), f"seed {SEED}"
    assert ext(ours)
    answer = loaded(judge, ours, CONFIG, {"do": "get"})
    assert all(served.get("look_ok") for served in answer["steps"][0])
    assert ext(theirs) == ext(ours), "loading changed it"
