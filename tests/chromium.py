"""A page in a real browser: headless Chromium, asked over a pipe with its DevTools protocol.

What the page logs and what it asks of a network is noted from before it is loaded.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-pipe", "--force-color-profile=srgb", "about:blank"),
)


class Page:
    """A tab. errors: what the console and the policy of the page said. requests: addresses asked for."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._left = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[str] = []
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol, and its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Load a file as a window of this width shows it, to its end."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", media="", features=[scheme])
        self._events.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while "Page.loadEventFired" not in self._events:
            self._next()

    def value(self, script: str) -> Any:
        """What a script of ours says about the page."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        return found["result"].get("value")

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def printed(self) -> bytes:
        """The page as PDF, in its own paper size."""
        self.ask("Emulation.setEmulatedMedia", media="")
        return base64.b64decode(self.ask("Page.printToPDF", preferCSSPageSize=True)["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            data = self._answers.read(1 << 16)
            assert data, "the browser is gone"
            self._left += data
        line, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        self._note(found.get("method", ""), found.get("params", {}))
        return found

    def _note(self, method: str, told: dict[str, Any]) -> None:
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Log.entryAdded":
            self.errors.append(told["entry"]["text"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.errors.append(json.dumps(told)[:500])
        elif method == "Page.javascriptDialogOpening":
            self.errors.append(f"dialog: {told['message']}")


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A tab of a browser of its own. profile: an empty folder for it."""
    assert PROGRAM is not None
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()

    def as_its_pipe() -> None:
        os.dup2(to_browser, 13)
        os.dup2(from_browser, 14)
        os.dup2(13, 3)
        os.dup2(14, 4)

    browser = subprocess.Popen(
        [PROGRAM, f"--user-data-dir={profile}", *_FLAGS],
        preexec_fn=as_its_pipe,  # noqa: PLW1509
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    page = None
    try:
        page = Page(commands, answers)
        yield page
    finally:
        os.close(commands)
        browser.terminate()
        browser.wait(timeout=30)
        if page is not None:
            page._answers.close()
