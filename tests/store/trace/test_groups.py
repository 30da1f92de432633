"""What groups subscribe to, and tables of groups that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.errors import InvalidInput
from mqstore.store.queues.filter_bits import SQL92
from mqstore.store.search.store import StoreReader
from mqstore.store.trace.answer import DeliveryVerdict
from mqstore.store.trace.groups import TAG, GroupTables, Subscription, given

from .asked import asked, config, k1, of_g, offsets, other_tag, whole


def test_tables_that_cannot_be_read_are_noted(root: Path) -> None:
    for name in ("topics.json", "subscriptionGroup.json"):
        (root / "config" / name).write_bytes(b"\xde\xad")
    notes: list[str] = []
    with StoreReader(root) as store:
        asked(store, "k1", notes=notes)
    for name in ("topics.json", "subscriptionGroup.json"):
        assert [text for text in notes if text.startswith(f"config/{name} cannot be read")]


@pytest.mark.parametrize(
    ("subscription", "wanted"),
    [
        (Subscription(TAG, "Aa || C", "--tags"), DeliveryVerdict.WAITING),
        (Subscription(TAG, "*", "--tags"), DeliveryVerdict.WAITING),
        (Subscription(TAG, "", "--tags"), DeliveryVerdict.WAITING),
        (Subscription(TAG, "C", "--tags"), DeliveryVerdict.FILTERED),
        (Subscription(TAG, "BB", "--tags"), DeliveryVerdict.FILTERED),
        (Subscription(TAG, "C || *", "--tags"), DeliveryVerdict.FILTERED),
        (Subscription(TAG, "* ||\tAa\n", "--tags"), DeliveryVerdict.WAITING),
        (Subscription(TAG, "\u00a0Aa", "--tags"), DeliveryVerdict.FILTERED),
        (Subscription(TAG, " * ", "--tags"), DeliveryVerdict.FILTERED),
        (Subscription(TAG, " || ", "--tags"), DeliveryVerdict.FILTERED),
        (Subscription(SQL92, "price > 4", "--sql"), DeliveryVerdict.WAITING),
        (Subscription(SQL92, "price > 5", "--sql"), DeliveryVerdict.FILTERED),
        (Subscription(SQL92, "region = 'eu'", "--sql"), DeliveryVerdict.FILTERED),
    ],
)
def test_a_subscription(root: Path, subscription: Subscription, wanted: DeliveryVerdict) -> None:
    """As FilterAPI and DefaultMessageFilter of 4.3.1, 4.9.7, 5.1.4, 5.3.3 and 5.5.1 have it."""
    offsets(root, g={"orders": {0: 0}})
    assert of_g(root, subscription=subscription)[0] is wanted


def test_a_tag_whose_hash_is_that_of_another(root: Path) -> None:
    """A broker lets it through: BB has the hash of Aa; a client does not."""
    offsets(root, g={"orders": {0: 3}})
    found = of_g(root, subscription=Subscription(TAG, "BB", "--tags"))
    assert found == (DeliveryVerdict.FILTERED, "the client drops the message: only the hash of its tag fits")


WRONG, ASKED = 2113, 2112
"""Tags codes: of no message here, and that of Aa and BB."""


@pytest.mark.parametrize("offset", [1, 3])
@pytest.mark.parametrize(
    ("subscription", "code", "wanted"),
    [
        (Subscription(TAG, "Aa", "--tags"), WRONG, DeliveryVerdict.FILTERED),
        (Subscription(TAG, "Aa || C", "--tags"), WRONG, DeliveryVerdict.FILTERED),
        (Subscription(TAG, "Aa || C", "--tags"), ord("C"), DeliveryVerdict.PASSED),
        (Subscription(TAG, "C", "--tags"), ord("C"), DeliveryVerdict.FILTERED),
        (Subscription(TAG, "Aa", "--tags"), ASKED | 1 << 40, DeliveryVerdict.PASSED),
        (Subscription(TAG, "*", "--tags"), WRONG, DeliveryVerdict.PASSED),
        (Subscription(SQL92, "price > 4", "--sql"), WRONG, DeliveryVerdict.PASSED),
    ],
)
def test_a_unit_with_the_tags_code_of_another_tag(
    root: Path, subscription: Subscription, code: int, wanted: DeliveryVerdict, offset: int
) -> None:
    """A broker asks for 32 bits of the code in the unit, a client for the tag; expressions ask for neither."""
    offsets(root, g={"orders": {0: offset}})
    other_tag(root, code)
    found = whole(k1(root, group="g", subscription=subscription), "g")
    passes = DeliveryVerdict.PASSED if offset == 3 else DeliveryVerdict.WAITING
    assert found.judgement.verdict is (passes if wanted is DeliveryVerdict.PASSED else wanted)
    assert "I-065" not in found.judgement.reason or code == WRONG
    mends = wanted is DeliveryVerdict.FILTERED and code == WRONG
    assert (found.next_command == f"mqstore repair {root} --queue orders/0") is mends


@pytest.mark.parametrize("offset", [0, 1, 3, None])
def test_a_wrong_tags_code_is_told_where_no_subscription_is_known(root: Path, offset: int | None) -> None:
    if offset is not None:
        offsets(root, g={"orders": {0: offset}})
    before = of_g(root)[0]
    other_tag(root, WRONG)
    found = whole(k1(root, group="g"), "g")
    assert found.judgement.verdict is before and found.judgement.reason.endswith("a wrong tags code (I-065)")
    assert any(f"with tags code {WRONG}" in each.fact for each in found.judgement.evidence)
    assert found.next_command == f"mqstore repair {root} --queue orders/0"
    (root / "abort").touch()
    assert whole(k1(root, group="g"), "g").next_command == f"mqstore recover {root}"


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [("C", DeliveryVerdict.FILTERED), ("C || *", DeliveryVerdict.FILTERED), ("||", DeliveryVerdict.PASSED)],
)
def test_a_subscription_that_config_knows(root: Path, expression: str, wanted: DeliveryVerdict) -> None:
    """One that no client can have says nothing."""
    offsets(root, g={"orders": {0: 3}})
    entry = {"groupName": "g", "subscriptionDataSet": [{"topic": "orders", "expression": expression}]}
    config(root, "subscriptionGroup.json", {"subscriptionGroupTable": {"g": entry}})
    found = whole(k1(root, group="g"), "g")
    assert found.judgement.verdict is wanted
    shown = f"mqstore dump {root}/config/subscriptionGroup.json"
    assert found.next_command == (shown if wanted is DeliveryVerdict.FILTERED else "")


def test_of_a_subscription_that_was_given_no_file_tells_more(root: Path) -> None:
    for given_ in (Subscription(TAG, "C", "--tags"), Subscription(SQL92, "price > 5", "--sql")):
        found = whole(k1(root, group="g", subscription=given_), "g")
        assert found.judgement.verdict is DeliveryVerdict.FILTERED and found.next_command == ""


def test_subscriptions_that_no_broker_takes() -> None:
    with pytest.raises(InvalidInput, match="not by both"):
        given("A", "a > 1")
    with pytest.raises(InvalidInput, match="--sql"):
        given(None, "a >")
    with pytest.raises(InvalidInput, match=r"clients do not subscribe to '\|\|'"):
        given("||", None)


def test_the_file_is_named_that_has_the_offsets(root: Path) -> None:
    """A broker with enableLmq has another one."""
    offsets(root, name="lmqConsumerOffset.json", g={"orders": {0: 1}})
    judged = whole(k1(root, config={"enableLmq": "true"}), "g").judgement
    (named,) = (fact.where for fact in judged.evidence if fact.fact.startswith("offset of the group in orders/0: 1"))
    assert named == "config/lmqConsumerOffset.json"


def test_the_groups_of_a_topic_are_found_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for each of its groups, which may be thousands."""
    topics: list[str] = []
    of_topic = GroupTables.of_topic

    def counted(self: GroupTables, topic: str) -> set[str]:
        topics.append(topic)
        return of_topic(self, topic)

    monkeypatch.setattr(GroupTables, "of_topic", counted)
    offsets(root, "consumerOffset.json", **{f"g{n}": {"orders": {0: 0}} for n in range(20)})
    with StoreReader(root) as store:
        (found,) = asked(store, "k1")
    assert len(found.groups) == 20
    assert topics == ["orders"]
