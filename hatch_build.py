"""Builds the native kernel (kernel/, Rust) into the wheel, where there is a Rust toolchain.

Without one, or where the crates cannot be had, the wheel is a pure one: numpy does the same, slower.
MQSTORE_KERNEL=numpy leaves the kernel out, MQSTORE_KERNEL=native makes its absence an error.
MQSTORE_GLIBC=2.17 builds one that runs wherever there is this glibc or a later one, by cargo-zigbuild.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_LIBRARY = "libmqstore_kernel.so"
_NAME = "_kernel.so"
_SECONDS = 300


class KernelHook(BuildHookInterface[Any]):
    """One library for all Pythons of a platform."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library; say in one line why there is none."""
        if self.target_name != "wheel":
            return
        wish = os.environ.get("MQSTORE_KERNEL", "")
        target = Path(self.root, "formats", _NAME)
        problem = "MQSTORE_KERNEL=numpy" if wish == "numpy" else self._build(target)
        if problem:
            target.unlink(missing_ok=True)
            if wish == "native":
                raise RuntimeError(f"no native kernel: {problem}")
            self.app.display_info(f"mqstore without its native kernel: {problem}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"
        if version != "editable":
            build_data["force_include"][os.fspath(target)] = f"mqstore/formats/{_NAME}"

    def _build(self, target: Path) -> str:
        """Why it could not be built, or nothing."""
        cargo = shutil.which("cargo")
        if cargo is None:
            return "there is no Rust toolchain (cargo)"
        if sys.platform != "linux":
            return f"it is built on Linux only, not on {sys.platform}"
        kernel = Path(self.root, "kernel")
        environment = {k: v for k, v in os.environ.items() if k != "CARGO_BUILD_TARGET"}
        # a network that does not answer must not hold up the installation
        impatient = {"CARGO_NET_RETRY": "0", "CARGO_HTTP_TIMEOUT": "15"}
        folder, glibc = kernel / "target", _glibc()
        # whatever the machine's settings say: a library found elsewhere would be an old one
        options = ["--release", "--locked", "--lib", "--quiet", "--target-dir", os.fspath(folder)]
        if glibc:
            triple = f"{platform.machine()}-unknown-linux-gnu"
            command = [cargo, "zigbuild", "--target", f"{triple}.{glibc}", *options]
            folder /= triple
        else:
            command = [cargo, "build", *options]
        try:
            done = subprocess.run(
                command,
                cwd=kernel,
                env=environment | impatient,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode:
            return f"cargo: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
        # in one step: a process may run by the library that is there
        beside = target.with_name(f"{_NAME}.new")
        try:
            shutil.copyfile(folder / "release" / _LIBRARY, beside)
            beside.replace(target)
        except OSError as error:
            return str(error)
        return ""


def _glibc() -> str:
    return os.environ.get("MQSTORE_GLIBC", "")


def _platform() -> str:
    """What the wheel runs on, as pip has it."""
    if _glibc():
        return f"manylinux_{_glibc().replace('.', '_')}_{platform.machine()}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
