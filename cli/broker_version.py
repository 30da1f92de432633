"""`--broker-version` and `--as-broker`: the broker whose rules apply.

For a version without a profile the nearest one is used, and a warning says so (`store/broker/profiles.py`).
"""

from __future__ import annotations

from typing import Annotated

from .declared import Option
from .options import Common


def parse_version(text: str) -> str:
    """Return the version as it was typed, if a profile exists for it. Raises InvalidInput."""
    from ..store.broker.profiles import profile_of

    profile_of(text)
    return text


def warn_of_nearest_version(version: str | None, common: Common) -> None:
    if version is None:
        return
    from ..store.broker.profiles import is_exact, profile_of

    if not is_exact(version):
        nearest = profile_of(version).version
        common.warn(f"no profile of {version}: that of {nearest} is the nearest")


BrokerVersion = Annotated[
    str | None,
    Option(
        "--broker-version",
        metavar="V",
        parser=parse_version,
        help="Version of the broker that will start: 4.3, 4.9, 5.1, 5.3, 5.4, 5.5, 5.5.1 (default: a guess).",
    ),
]
AsBroker = Annotated[
    str | None,
    Option(
        "--as-broker",
        metavar="V",
        parser=parse_version,
        help="Write as a broker of this version: 4.3, 4.9, 5.1, 5.3, 5.4, 5.5, 5.5.1.",
    ),
]
