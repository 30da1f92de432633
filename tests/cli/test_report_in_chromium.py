"""The page of `report` as a browser shows it: it is drawn, says nothing on the console, asks no network."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .. import stores
from ..chromium import PROGRAM, Page, chromium
from .datadriven import run_here
from .hostile import SIZES, TEXTS, hostile_store
from .test_report import MARKUP

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    paths = [str(stores.unpack(n, folder)) for n in ("5.3.3-killed-page", "5.1.4-timer-clean")]
    run_here(["report", *paths, "--to", str(folder / "page.html")])
    return folder / "page.html"


def colours(png: bytes) -> int:
    """How many different bytes the picture is made of, unpacked: a blank one has next to none."""
    at, data = 8, b""
    while at < len(png):
        size = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += 12 + size
    return len(set(zlib.decompress(data)))


def quiet(page: Page, file: Path) -> None:
    """Nothing was said and nothing was asked for but the file."""
    assert page.errors == []
    assert set(page.requests) == {file.as_uri()}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_is_drawn(page: Page, file: Path, width: int, dark: bool) -> None:
    page.requests.clear()
    page.open(file, width, dark=dark)
    assert colours(page.screenshot()) > 50
    quiet(page, file)
    # a page as wide as the window: what is wider scrolls in its place
    assert page.value("document.documentElement.scrollWidth") == width
    background = page.value("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)")
    # every picture has shapes that can be seen, letters that can be read, and a text of its own
    shown = "[...document.querySelectorAll('figure > svg')]"
    assert page.value(f"{shown}.length") >= 10
    boxes = "[...s.querySelectorAll('rect')].filter(r => r.getBoundingClientRect().width > 0.2)"
    assert page.value(f"{shown}.every(s => {boxes}.length > 0)")
    assert page.value("getComputedStyle(document.querySelector('text')).fontSize") == "12px"
    named = "s.getAttribute('aria-labelledby').split(' ').every(i => document.getElementById(i).textContent)"
    assert page.value(f"{shown}.every(s => s.getAttribute('role') == 'img' && {named})")
    assert page.value("document.querySelectorAll('figure details table').length") >= 10


def test_it_prints_on_a4(page: Page, file: Path) -> None:
    page.requests.clear()
    page.open(file, 800)
    pdf = page.printed()
    sizes = {
        tuple(float(number) for number in found) for found in re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    }
    ((width, height),) = sizes
    assert abs(width - 595.3) < 1 and abs(height - 841.9) < 1  # 210 mm, 297 mm
    assert len(re.findall(rb"/Type /Page\b", pdf)) > 2
    quiet(page, file)


def test_hostile_texts_do_nothing(page: Page, tmp_path: Path) -> None:
    root = hostile_store(tmp_path / "store", (*MARKUP, *TEXTS))
    file = tmp_path / "page.html"
    run_here(["report", str(root), "--to", str(file), *SIZES])
    page.requests.clear()
    page.open(file, 1200)
    assert colours(page.screenshot()) > 50
    quiet(page, file)
    assert page.value("document.querySelectorAll('script, iframe, img, object, embed').length") == 0
    assert page.value("document.querySelectorAll('main figure').length") >= 5


@pytest.mark.slow
def test_the_policy_forbids_what_a_template_might_let_through(page: Page, file: Path, tmp_path: Path) -> None:
    """The page itself holds scripts, styles and requests back."""
    told = file.read_text(encoding="utf-8")
    spoiled = tmp_path / "spoiled.html"
    bad = (
        "<script>document.title='gone'</script><img src='http://127.0.0.1:9/x'>"
        "<p id=x style='color:red' onclick=alert(1)>x</p><style>body{display:none}</style>"
    )
    spoiled.write_text(told.replace("<main>", f"<main>{bad}"), encoding="utf-8")
    page.requests.clear()
    page.open(spoiled, 800)
    assert page.value("document.title") != "gone"
    assert page.value("getComputedStyle(document.body).display") == "block"
    assert page.value("getComputedStyle(document.getElementById('x')).color") != "rgb(255, 0, 0)"
    assert len(page.errors) >= 4 and all("Content Security Policy" in text for text in page.errors)
    page.errors.clear()
