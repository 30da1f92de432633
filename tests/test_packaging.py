"""What is shipped: the folders of the root as `mqstore`, man pages, completions, and nothing else."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from .archives import extract

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
FOLDERS = ["cli", "formats", "pipeline", "store"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]

# shared folder of the wheel -> folder of the repository
SHARED = {
    "share/man/man1": "man/man1",
    "share/man/man5": "man/man5",
    "share/bash-completion/completions": "completions/bash",
    "share/zsh/site-functions": "completions/zsh",
    "share/fish/vendor_completions.d": "completions/fish",
}


def build(source: Path, to: Path, kind: str) -> Path:
    """Build `source` with the back end that the development set-up holds; give the file."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "-o", str(to), "."]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = to.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def unpacked_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sdist = build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")
    to = tmp_path_factory.mktemp("unpacked")
    extract(sdist, to)
    return to / f"mqstore-{VERSION}"


def contents(wheel: Path) -> dict[str, str]:
    """Name and hash of every file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def sources(folder: Path) -> set[str]:
    """The files below a folder that are ours, relative to it."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_links_point_at_the_folders_of_the_root() -> None:
    links = {path.name: path for path in (ROOT / "src/mqstore").iterdir() if path.is_symlink()}
    assert sorted(links) == FOLDERS
    for name, link in links.items():
        assert link.readlink() == Path("../..") / name
        assert link.resolve() == ROOT / name


def test_the_wheel_holds_the_package_its_pages_and_its_completions(wheel: Path) -> None:
    expected = {"mqstore/__init__.py", "mqstore/__main__.py", "mqstore/py.typed"}
    expected |= {path.name for path in (ROOT / "src").glob("*.py")}
    for folder in FOLDERS:
        expected |= {f"mqstore/{folder}/{name}" for name in sources(ROOT / folder)}
    for shared, folder in SHARED.items():
        assert sources(ROOT / folder), f"{folder} is empty"
        data = f"mqstore-{VERSION}.data/data/{shared}"
        expected |= {f"{data}/{name}" for name in sources(ROOT / folder)}
    information = f"mqstore-{VERSION}.dist-info/"
    held = {name for name in contents(wheel) if not name.startswith(information)}
    assert held == expected


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(wheel: Path, unpacked_sdist: Path, tmp_path: Path) -> None:
    assert contents(build(unpacked_sdist, tmp_path, "wheel")) == contents(wheel)


def test_the_sdist_holds_what_its_own_tests_need(unpacked_sdist: Path) -> None:
    assert sources(unpacked_sdist / "tests") == sources(ROOT / "tests")
    for name in ("README.md", "CHANGELOG.md", "LICENSE"):
        assert (unpacked_sdist / name).is_file()


def test_there_is_one_version() -> None:
    assert version("mqstore") == VERSION
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{VERSION}]" in changes
    said = subprocess.run([sys.executable, "-m", "mqstore", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"mqstore {VERSION}\n"


def test_the_declared_pythons_are_those_that_are_tested() -> None:
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    declared = [
        line.rpartition(" ")[2]
        for line in PROJECT["classifiers"]
        if line.startswith("Programming Language :: Python :: 3.")
    ]
    assert PROJECT["requires-python"] == f">={declared[0]}"
    assert f"PYTHONS=({' '.join(declared)})" in ci
