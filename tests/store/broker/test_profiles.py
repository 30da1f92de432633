"""Generations of brokers: which one stands for a version, and that nothing stands for nonsense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.profiles import NEWEST, PROFILES, VERSIONS, is_exact, profile_of, writer_profile
from mqstore.store.errors import InvalidInput


@pytest.mark.parametrize("text", ["", " ", "5", "5.", "five", "-5.3", "5.3 4", "5,3", "5.3\n4.9", "99999.1"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a broker version") as found:
        profile_of(text)
    assert NEWEST in found.value.hint


@pytest.mark.parametrize("text", ["3.2.6", "4.11.0", "5.7.0", "6.0", "0.0"])
def test_versions_that_no_profile_is_near_are_refused(text: str) -> None:
    for ask in (profile_of, writer_profile):
        with pytest.raises(InvalidInput, match="no profile near"):
            ask(text)


@given(st.sampled_from([(4, minor) for minor in range(11)] + [(5, minor) for minor in range(7)]), st.integers(0, 30))
def test_the_newest_generation_that_is_not_newer_stands_for_a_version(line: tuple[int, int], patch: int) -> None:
    """The oldest one for what came before it; the name of a generation is that of its own profile."""
    wanted = (*line, patch)
    text = ".".join(map(str, wanted))
    found = profile_of(text)
    if text not in PROFILES:
        older = [each for each in PROFILES.values() if each.since <= wanted]
        nearest = max(older, key=lambda each: each.since) if older else PROFILES[VERSIONS[0]]
        halts = nearest.version == "4.9" and wanted >= (4, 9, 3)
        assert found == nearest._replace(record=nearest.record._replace(level_halts=halts))
    assert found is profile_of(f"v{text}-SNAPSHOT") is profile_of(f" {text}")
    assert writer_profile(text).start is found


def test_each_generation_stands_for_itself() -> None:
    """In order of their releases; reader and writer know the same."""
    assert [profile.since for profile in PROFILES.values()] == sorted(profile.since for profile in PROFILES.values())
    for version in VERSIONS:
        assert profile_of(version).version == writer_profile(version).version == version
        for spelled in (f"v{version}", f" {version}-SNAPSHOT", f"{version}.x"):
            assert profile_of(spelled) is profile_of(version) and is_exact(spelled)
        assert is_exact(version)
    assert not is_exact("4.7.1") and not is_exact("5.6.0")
