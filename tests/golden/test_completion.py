# SPDX-License-Identifier: Apache-2.0
"""The completion scripts, run by the shells that they are for."""

import os
import pathlib
import shutil
import subprocess

import pytest

HORARUN = os.environ["HORARUN"]


def script(shell):
    return subprocess.run([HORARUN, "completion", shell], check=True, capture_output=True, text=True, timeout=60).stdout


def complete(tmp_path, *words):
    """What bash would offer for the last word."""
    (tmp_path / ".ssh").mkdir(exist_ok=True)
    (tmp_path / ".ssh/config").write_text("Host alpha *.example\n  User me\nHost beta\n")
    (tmp_path / ".ssh/known_hosts").write_text(
        "gamma,10.0.0.7 ssh-ed25519 AAAA\n|1|hashed= ssh-rsa AAAA\n[delta]:22 ssh-rsa A\n"
    )
    ask = f'{script("bash")}\nCOMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _horarun; printf \'%s\\n\' "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", ask, "bash", "horarun", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_options(tmp_path):
    assert complete(tmp_path, "--start-t") == {"--start-timeout"}
    assert {"-np", "-H", "--hosts"} <= complete(tmp_path, "-")


def test_bash_completes_values(tmp_path):
    assert complete(tmp_path, "--transport", "") == {"auto", "ssh", "command"}
    assert complete(tmp_path, "cache", "") == {"ls", "clean"}
    assert complete(tmp_path, "explain", "E_SSH_A") == {"E_SSH_AUTH"}


def test_bash_completes_hosts(tmp_path):
    assert complete(tmp_path, "-H", "") >= {"alpha", "beta", "gamma", "10.0.0.7"}
    assert not complete(tmp_path, "-H", "") & {"*.example", "[delta]:22", "|1|hashed="}
    assert complete(tmp_path, "--hosts", "alpha,be") == {"alpha,beta"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_reads_its_script(tmp_path, shell):
    program = shutil.which(shell)
    if not program:
        pytest.skip(f"{shell} is not installed")
    path = pathlib.Path(tmp_path, "script")
    path.write_text(script(shell))
    subprocess.run([program, "-n", path], check=True, timeout=60)
