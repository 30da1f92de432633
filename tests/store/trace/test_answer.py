"""What a trace says: a closed list of verdicts, each with what it rests on."""

from __future__ import annotations

from pathlib import Path

from mqstore.store.search.store import StoreReader
from mqstore.store.trace.answer import By, DeliveryVerdict, Evidence, Judgement

from ...stores import messages, truth, unpack
from .asked import asked


def test_of_every_group_only_evidence_counts(tmp_path: Path) -> None:
    """The list is closed, and every verdict but `unknown` has a fact beside it."""
    name = "5.5.0-clean"
    root = unpack(name, tmp_path)
    assert truth(name)["exit"] == "clean"
    with StoreReader(root) as store:
        for message in list(messages(name))[::23]:
            for each in asked(store, str(message["physical_offset"]), By.POSITION):
                for row in each.groups:
                    assert row.judgement.verdict in DeliveryVerdict
                    assert row.judgement.evidence, row


def test_each_fact_is_told_once_in_the_order_it_was_found() -> None:
    first, second = Evidence("a unit names it", "consumequeue"), Evidence("it ends there", "commitlog")
    judged = Judgement(DeliveryVerdict.GONE, "because", (first,)).with_evidence(second, first, second)
    assert judged.evidence == (first, second)
    plain = judged.to_json()
    assert plain["evidence"] == [first._asdict(), second._asdict()]
    assert (plain["verdict"], plain["bug"], plain["until_timestamp"]) == ("expired_or_cut_off", None, None)
