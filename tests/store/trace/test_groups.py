"""What groups subscribe to, and tables of groups that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.errors import InvalidInput
from mqstore.store.queues.filter_bits import SQL92
from mqstore.store.search.store import StoreReader
from mqstore.store.trace.answer import DeliveryVerdict
from mqstore.store.trace.groups import TAG, Subscription, given

from .asked import asked, config, of_g, offsets


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
        (Subscription(TAG, "C", "--tags"), DeliveryVerdict.FILTERED),
        (Subscription(TAG, "BB", "--tags"), DeliveryVerdict.FILTERED),
        (Subscription(SQL92, "price > 4", "--sql"), DeliveryVerdict.WAITING),
        (Subscription(SQL92, "price > 5", "--sql"), DeliveryVerdict.FILTERED),
        (Subscription(SQL92, "region = 'eu'", "--sql"), DeliveryVerdict.FILTERED),
    ],
)
def test_a_subscription(root: Path, subscription: Subscription, wanted: DeliveryVerdict) -> None:
    offsets(root, g={"orders": {0: 0}})
    assert of_g(root, subscription=subscription)[0] is wanted


def test_a_tag_whose_hash_is_that_of_another(root: Path) -> None:
    """A broker lets it through: BB has the hash of Aa; a client does not."""
    offsets(root, g={"orders": {0: 3}})
    found = of_g(root, subscription=Subscription(TAG, "BB", "--tags"))
    assert found == (DeliveryVerdict.FILTERED, "the client drops the message: only the hash of its tag fits")


def test_a_subscription_that_config_knows(root: Path) -> None:
    offsets(root, g={"orders": {0: 3}})
    entry = {"groupName": "g", "subscriptionDataSet": [{"topic": "orders", "expression": "C"}]}
    config(root, "subscriptionGroup.json", {"subscriptionGroupTable": {"g": entry}})
    assert of_g(root)[0] is DeliveryVerdict.FILTERED


def test_subscriptions_that_no_broker_takes() -> None:
    with pytest.raises(InvalidInput, match="not by both"):
        given("A", "a > 1")
    with pytest.raises(InvalidInput, match="--sql"):
        given(None, "a >")
