# SPDX-License-Identifier: Apache-2.0
"""The product on the oldest processor that it promises, x86-64-v1: qemu runs horarun and everything that it starts.

HORA_ROOTS=FOLDER has the qemu (tests/support/roots/make FOLDER qemu).
"""

import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support", "roots"))
import emulation

ROOTS = os.environ.get("HORA_ROOTS", "")
WHY_NOT = emulation.reason_against_qemu(ROOTS, "x86_64") if os.uname().machine == "x86_64" else "takes x86-64"
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

# qemu64 has three things that x86-64-v1 has not.
PROCESSOR = "qemu64,-sse3,-cx16,-lahf_lm"
EMULATED_S = 300
# Without NumPy: Debian's takes SSE3.
TRAIN = """
import hora
hora.init()
assert hora.allgather_object(hora.rank()) == list(range(hora.size()))
print("hora", hora.rank(), "of", hora.size(), flush=True)
"""


@pytest.fixture
def emulated():
    """(what goes before a command, the environment)"""
    return [emulation.EMULATED, emulation.qemu(ROOTS, "x86_64")], {"QEMU_CPU": PROCESSOR}


@pytest.fixture
def on_the_oldest(horarun, emulated, tmp_path):
    command, environment = emulated
    program = tmp_path / "horarun"
    program.write_text(f'#!/bin/sh\nexec {" ".join(command)} {horarun.path} "$@"\n')
    program.chmod(0o755)
    horarun.path = str(program)
    variables = {**environment, "HOME": str(tmp_path), "HOROVOD_START_TIMEOUT": "120"}

    def run(*arguments, **more):
        return horarun.run(*arguments, env={**variables, **more}, timeout=EMULATED_S)

    return run


def test_the_processor_has_no_vector_code_but_the_baseline(build, emulated):
    """And so the kernels choose that; an instruction of AVX2 would be the program's end."""
    command, environment = emulated
    done = subprocess.run(
        [*command, os.path.join(build, "bin/collectives_test"), "kernels: each processor has its tables"],
        env={**os.environ, **environment, "HORA_TEST_INSTRUCTION_SETS": "baseline"},
        capture_output=True,
        text=True,
        timeout=EMULATED_S,
    )
    assert done.returncode == 0 and "All tests passed" in done.stdout, done


def test_the_collectives(on_the_oldest):
    done = on_the_oldest("-np", "2", "--smoke").expect(0)
    assert "all ok" in done.text and "shm" in done.text, done
    done = on_the_oldest("-np", "2", "--rendezvous-tls", "--smoke", HORA_BACKENDS="gloo").expect(0)
    assert "all ok" in done.text and "gloo" in done.text, done


def test_python(on_the_oldest):
    done = on_the_oldest("-np", "2", "python3", "-c", TRAIN).expect(0)
    assert sorted(line for lines in done.ranks().values() for line in lines) == ["hora 0 of 2", "hora 1 of 2"], done


def test_the_agent_that_is_shipped(on_the_oldest, tmp_path):
    """And the doctor's programs."""
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    host = ("--rsh", shell, "-H", "elsewhere:2", "--wdir", "/")
    done = on_the_oldest("--verbose", *host, "--network-interfaces", "lo", "--smoke").expect(0)
    assert "all ok" in done.text and "agent ready, shipped" in done.messages, done
    report = on_the_oldest("doctor", "--rsh", shell, "-H", "elsewhere:2", "--json")
    assert '"findings"' in report.text and "D_LIBRARY" not in report.text, report
