# SPDX-License-Identifier: Apache-2.0
"""What tests need to run programs for ARM64 here: the root arm64 and the qemu beside it, both made by
tests/support/roots/make."""

import os
import re
import subprocess

EMULATED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "emulated")


def qemu(roots):
    return os.path.join(roots, "qemu-aarch64")


def reason_against(roots):
    """Why programs for ARM64 cannot run here; empty if they can."""
    if not roots or not os.path.isdir(os.path.join(roots, "arm64")):
        return "takes the root arm64 (tests/support/roots/make)"
    version = subprocess.run([qemu(roots), "--version"], capture_output=True, text=True).stdout
    if not re.match(r"qemu-aarch64 version [1-9]\d", version):
        return f"takes qemu 10 or later as {qemu(roots)}"
    tried = subprocess.run([EMULATED, qemu(roots), "true"], capture_output=True, text=True)
    return f"no emulation here: {tried.stderr.strip()}" if tried.returncode else ""
