# SPDX-License-Identifier: Apache-2.0
"""A sample of the runs of tests/faults/every_call.py; `scripts/ci every-call` runs more of them."""

import os
import platform
import subprocess

import pytest

CAMPAIGN = os.path.join(os.path.dirname(__file__), "..", "faults", "every_call.py")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the tracer knows the registers of x86-64 only")
def test_some_system_calls_fail(build):
    done = subprocess.run(
        ["/usr/bin/python3", CAMPAIGN, "12", "7"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "HORA_BUILD": build, "HORA_CALLS": "system", "HORA_JOBS": "echo"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the tracer knows the registers of x86-64 only")
def test_a_stream_that_cannot_be_read_ends_the_agent(build, tmp_path):
    """It has greeted, so the host is lost."""
    tracer = [f"{build}/bin/fault_tracer", "agent", "socket-read", "EIO", "1", str(tmp_path / "log"), "--"]
    done = subprocess.run(
        [*tracer, f"{build}/bin/horarun", "-np", "2", "true"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 125 and "host localhost: " in done.stderr and "[E_HOST_LOST]" in done.stderr, done
