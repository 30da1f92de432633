"""Group A: layout (spec 08, I-001 … I-014)."""

from __future__ import annotations

import os

from .register import before
from .scene import Scene


@before("I-009")
def no_abort(scene: Scene) -> None:
    """`abort` is there while a broker runs, and after one that did not stop in order."""
    if scene.crashed and not scene.live:
        path = os.fspath(scene.store.layout.abort)
        scene.findings.add("I-009", path, "the last broker did not stop in order", unclean=True)
