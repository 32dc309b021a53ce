# SPDX-License-Identifier: Apache-2.0
"""What tests need to run programs for another processor here: a qemu, and for ARM64 a root, both made by
tests/support/roots/make."""

import os
import re
import subprocess

EMULATED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "emulated")


def qemu(roots, machine="aarch64"):
    return os.path.join(roots, f"qemu-{machine}")


def reason_against_qemu(roots, machine):
    """Why programs for this processor cannot run here; empty if they can."""
    program = qemu(roots, machine)
    if not roots or not os.path.exists(program):
        return f"takes HORA_ROOTS with qemu-{machine} (tests/support/roots/make)"
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
    if not re.match(rf"qemu-{machine} version [1-9]\d", version):
        return f"takes qemu 10 or later as {program}"
    tried = subprocess.run([EMULATED, program, "true"], capture_output=True, text=True)
    return f"no emulation here: {tried.stderr.strip()}" if tried.returncode else ""


def reason_against(roots):
    """The same for ARM64, which takes a root with its libraries."""
    if not roots or not os.path.isdir(os.path.join(roots, "arm64")):
        return "takes the root arm64 (tests/support/roots/make)"
    return reason_against_qemu(roots, "aarch64")
