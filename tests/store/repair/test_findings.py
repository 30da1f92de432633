"""Findings of index, consumequeue_ext, checkpoint, compaction and timer: mended, named no more, undone."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from mqstore.store.compaction import open_log
from mqstore.store.config import BrokerConfig
from mqstore.store.layout import Layout
from mqstore.store.repair.parts import Part, chosen

from ... import slices, stores
from ...slices import rng
from .mended import check_mended, told
from .test_repair import repaired, rows

CODES = (
    "I-079",
    "I-091",
    "I-093",
    "I-099",
    "I-104",
    "I-113",
    "I-125",
    "I-126",
    "I-127",
    "I-128",
    "I-129",
    "I-132",
    "I-137",
    "I-161",
    "I-162",
    "I-164",
)
FAST = ("I-079", "I-093", "I-126", "I-129", "I-162")
WAYS = 12


@pytest.mark.parametrize("code", FAST)
def test_the_finding_is_mended(code: str, tmp_path: Path) -> None:
    check_mended(code, "mend", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("code", CODES)
def test_each_way_of_breaking_it_is_mended(code: str, tmp_path: Path) -> None:
    for number in range(slices.share(WAYS)):
        check_mended(code, "each way", tmp_path, number)


def test_ext_units_get_their_sizes_again(tmp_path: Path) -> None:
    """What the queue and the records do not tell of a unit, its bit map, stays as it is."""
    from ..verify.mutations import mutations

    name = "5.3.3-cqext"
    root = stores.unpack(name, tmp_path)
    wanted = rows(root, ["consumequeue_ext", "consumequeue"])
    mutations()["I-079"].mutate(root, Random("sizes again"))
    assert rows(root, ["consumequeue_ext", "consumequeue"]) != wanted
    repaired(root, BrokerConfig({}), chosen([Part.EXT], ()))
    assert rows(root, ["consumequeue_ext", "consumequeue"]) == wanted


@pytest.mark.parametrize("zeros", [11, 45])
def test_a_torn_record_of_a_compaction_log_comes_from_the_commit_log(
    zeros: int, tmp_path: Path
) -> None:
    """No size and no CRC tells of zeros over the last bytes of its properties."""
    name = "5.3.3-compaction"
    root = stores.unpack(name, tmp_path)
    wanted = rows(root, ["compaction"])
    layout = Layout.open(root, BrokerConfig({}))
    queue = rng(f"torn {zeros}").choice(sorted((root / "compaction/compactionLog").glob("*/*")))
    log = open_log(layout, queue.parent.name, int(queue.name))
    end = log.end().position
    file = log.queue.file_at(end - 1)
    assert file is not None
    with Path(file.path).open("r+b") as opened:
        opened.seek(end - file.start - zeros)
        opened.write(bytes(zeros))
    assert "I-055" in told(name, root)
    repaired(root, BrokerConfig({}), chosen([Part.COMPACTION], ()))
    assert rows(root, ["compaction"]) == wanted
