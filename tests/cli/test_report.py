"""`report`: one page of HTML that harms nobody, whatever the store holds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mqstore.cli.app import run
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import first_sentence

from .. import packing, stores
from .datadriven import run_here
from .held import held
from .hostile import TEXTS, hostile_store, mq
from .test_reads_only import nothing_is_written

pytestmark = pytest.mark.long

MARKUP = (
    "<script>alert(1)</script>",
    '"><img src=http://127.0.0.1:9/x onerror=alert(1)>',
    "</title></style></svg><iframe src='http://127.0.0.1:9/'></iframe>",
    "{{ 7 * 7 }}{% raw %}${7*7}",
    "<!--",
    "&lt;b&gt;&#0;",
    "' onload='alert(1)",
    "]]><style>*{display:none}</style>",
)
VOID = {"meta", "br", "rect"}


class Tree(HTMLParser):
    """All elements and attributes of a page; raises where they do not nest."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID or tag == "rect":
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "footer"),
    *("h1", "h2", "h3", "p", "strong", "dl", "dt", "dd", "ul", "li", "pre", "code", "a"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td", "div", "details", "summary"),
    *("figure", "figcaption", "svg", "desc", "defs", "pattern", "rect", "text"),
}


def harmless(page: str) -> Tree:
    """Nothing in it is of the store but text; it loads nothing."""
    tree = Tree(page)
    assert tree.tags <= TAGS, tree.tags - TAGS
    assert not [name for name in tree.attributes if name.startswith("on")]
    assert "src" not in tree.attributes and "style" not in tree.attributes
    links = set(re.findall(r'href="([^"]*)"', page))
    assert all(link.startswith("#s") for link in links)
    assert "default-src 'none'" in page
    return tree


def page_of(*arguments: object) -> str:
    """What `report` writes."""
    *paths, to = map(str, arguments)
    run_here(["report", *paths, "--to", to, "--utc"])
    return Path(to).read_text(encoding="utf-8")


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "name",
    [
        *("5.3.3-killed-page", "5.1.4-timer-clean", "4.9.7-killed-hole", "5.3.3-dledger"),
        *("5.3.3-rocksdb", "4.9.7-multipath", "5.3.3-compaction", "4.9.7-expired", "5.1.4-batchcq"),
    ],
)
def test_a_page_says_what_verify_says(name: str, tmp_path: Path) -> None:
    """The verdict is the first thing on it; nothing of the store is written."""
    root = stores.unpack(name, tmp_path)
    with nothing_is_written(root):
        tree = harmless(page_of(root, tmp_path / "page.html"))
    with StoreReader(root) as store:
        verdict = verify(store)
    assert f"{first_sentence(verdict, root)}." in tree.text
    assert all(finding.code in tree.text for finding in verdict.findings)
    assert f"{verdict.records:,} of " in tree.text


def test_what_is_lost_is_said_by_topic(tmp_path: Path) -> None:
    """In the words of no finding: what a start loses, and what recover does not save of it."""
    root = stores.unpack("5.3.3-killed-page", tmp_path)
    page = tmp_path / "page.html"
    assert run_here(["report", str(root), "--to", str(page)]).code == 1
    text = " ".join(re.sub("<[^>]*>", " ", page.read_text()).split())
    assert "loses 14 messages of logs; with recover 2 12 messages of T%a|b_c-D; with recover 4" in text


def test_the_numbers_are_those_of_stats(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-clean", tmp_path)
    tree = harmless(page_of(root, tmp_path / "page.html"))
    counted = json.loads(run_here(["stats", str(root), "--by", "topic", "--format", "json"]).stdout)
    rows = [row for row in counted if "topic" in row]
    assert rows
    for row in rows:
        wanted = (row["topic"], f"{row['records']:,}", f"{row['bytes']:,}")
        assert "\n".join(wanted).replace("\n", "") in tree.text.replace("\n", ""), wanted


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    root = hostile_store(tmp_path / "s<b>\u202e\nall is well", (*MARKUP, *TEXTS))
    to = tmp_path / "page\n.html"
    result = mq("report", root, "--to", to)
    page = to.read_text(encoding="utf-8")
    tree = harmless(page)
    assert result.code == 1
    assert (
        result.stdout.count("\n") == 1 and r"\nall is well: Do not" in result.stdout and r"page\n.html" in result.stdout
    )
    assert "<script>alert(1)</script>" in tree.text and "{{ 7 * 7 }}" in tree.text
    assert "\u202e" not in page and "\x1b" not in page and "\0" not in page


def test_several_stores_are_one_page(tmp_path: Path) -> None:
    """One that cannot be read is a row, and the rest is there."""
    roots = [stores.unpack(name, tmp_path) for name in ("5.3.3-clean", "5.3.3-killed-bit")]
    to = tmp_path / "page.html"
    paths = [*map(str, roots), str(tmp_path / "none")]
    result = run_here(["report", *paths, "--to", str(to), "--format", "ndjson"])
    assert result.code == 5
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["status"] for row in rows] == ["clean", "damaged", "unreadable"]
    tree = harmless(to.read_text(encoding="utf-8"))
    assert tree.text.index("Verdicts") < tree.text.index("Map of the log")
    assert "3 stores, 2 damaged or unreadable" in tree.text


@pytest.mark.parametrize("where", ["page.html", "config/page.html", "../link/page.html", "."])
def test_nothing_is_written_into_a_store(where: str, tmp_path: Path) -> None:
    root = stores.unpack("4.3.1-clean", tmp_path)
    (tmp_path / "link").symlink_to(root)
    with nothing_is_written(root):
        assert run(["report", str(root), "--to", str(root / where)]) == 2


def test_a_page_that_is_there_stays_where_a_store_cannot_be_read(tmp_path: Path) -> None:
    to = tmp_path / "page.html"
    to.write_text("before")
    assert run(["report", str(tmp_path / "none"), "--to", str(to)]) == 5
    assert to.read_text() == "before"
    root = stores.unpack("4.3.1-clean", tmp_path / "in")
    assert run(["report", str(root), "--to", str(tmp_path / "no" / "page.html")]) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "page.html"]


def test_a_page_into_a_pipe(tmp_path: Path) -> None:
    """`--to /dev/stdout`; who reads may go away."""
    root = stores.unpack("4.3.1-clean", tmp_path)
    words = [sys.executable, "-m", "mqstore", "report", str(root), "--to", "/dev/stdout"]
    done = subprocess.run([*words, "-o", "/dev/null"], capture_output=True, check=False)
    assert done.returncode == 0 and done.stderr == b""
    harmless(done.stdout.decode())


def test_without_jinja_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    result = run_here(["report", str(tmp_path), "--to", str(tmp_path / "page.html")])
    assert result.code == 5
    assert result.stderr == ("mqstore: no report without Jinja2; pip install 'mqstore[report]'\n")


def test_compressed_and_partial_copies(tmp_path: Path) -> None:
    root = stores.unpack("5.3.3-killed-page", tmp_path)
    files = sorted((root / "commitlog").iterdir())
    files[1].unlink()
    packing.pack(files[0], "zstd")
    tree = harmless(page_of(root, tmp_path / "page.html"))
    assert "1 log file: no broker reads these so" in tree.text
    assert "of the log are missing: no file has them" in tree.text
    assert "in no file, or not readable" in tree.text


def test_a_store_in_use(tmp_path: Path) -> None:
    """Up to where its log ended; no start is played, and nothing is called damage that comes later."""
    root = stores.unpack("5.3.3-killed", tmp_path)
    with held(root), nothing_is_written(root):
        page = page_of(root, tmp_path / "page.html")
        same = run_here(["diff", str(root), str(root)])
    tree = harmless(page)
    assert "In use, and in order" in tree.text
    assert "Somebody writes to it: no start is played." in tree.text
    assert same.code == 0 and same.stdout.startswith("The same (")
