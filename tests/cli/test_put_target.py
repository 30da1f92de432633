"""What `mqstore put` does with a store that it writes to."""

from __future__ import annotations

import re
from pathlib import Path

from .. import stores
from .datadriven import run_here


def test_put_goes_on_at_the_end_of_the_queue(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-rocksdb", tmp_path)
    result = run_here(["put", str(root), "TopicA", "one more", "--queue", "0"])
    assert result.code == 0, result.stderr
    told = re.search(r"TopicA queue 0 offset (\d+)", result.stdout)
    assert told is not None, result.stdout
    place = ["--topic", "TopicA", "--queue", "0", "--offset", told[1]]
    assert "one more" in run_here(["get", str(root), *place]).stdout
    assert run_here(["verify", str(root)]).code == 0
