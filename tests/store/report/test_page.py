"""The page around the sections of stores: it says what was not read, and allows nothing but its own style."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from mqstore.store.report.page import Section, StoreRow, _folded, page_of, unreadable

HOSTILE = "</title><script>alert(1)</script>\u202e&\x1b[31m"


def page(*sections: Section) -> str:
    return "".join(page_of(sections, "1.2.3", "made on a Monday"))


def row(status: str, number: int = 0) -> Section:
    """A section of a store with a status."""
    return Section(StoreRow(f"/store{number}", status, f"it is {status}", "Why.", 3, 300), f"<p>section {number}</p>")


def test_a_store_that_cannot_be_read_is_a_section_and_harms_nobody() -> None:
    section = unreadable(HOSTILE, HOSTILE, 1)
    found = page(section)
    assert section.row.status == "unreadable" and section.html in found
    assert "<script" not in found and "alert(1)" in found
    assert "\u202e" not in found and "\x1b" not in found
    assert found.count("<title>") == found.count("</title>") == 1


@pytest.mark.parametrize(
    ("statuses", "title"),
    [
        (["damaged"], "/store0: it is damaged"),
        (["clean", "unclean"], "2 stores, 0 damaged or unreadable"),
        (["damaged", "clean", "unreadable"], "3 stores, 2 damaged or unreadable"),
    ],
)
def test_the_title_counts_what_is_bad(statuses: list[str], title: str) -> None:
    found = page(*(row(status, number) for number, status in enumerate(statuses)))
    assert f"<title>{title}" in found
    places = [found.index(f"<p>section {number}</p>") for number in range(len(statuses))]
    assert places == sorted(places)


def test_the_policy_allows_the_style_of_the_page_and_nothing_else() -> None:
    """By its digest: a style that somebody adds is none."""
    found = page(row("clean"))
    (style,) = re.findall(r"<style>(.*?)</style>", found, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', found)
    assert "default-src 'none'" in policy.replace("&#39;", "'")
    assert f"sha256-{digest}" in policy.replace("&#43;", "+").replace("&#34;", "")


@pytest.mark.parametrize(
    ("count", "shown"), [(0, []), (2, ["0", "1"]), (3, ["0", "1", "and 1 more"]), (9, ["0", "1", "and 7 more"])]
)
def test_what_is_too_much_is_folded(count: int, shown: list[str]) -> None:
    assert _folded(map(str, range(count)), 2) == shown
