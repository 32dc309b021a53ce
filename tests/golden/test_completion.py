# SPDX-License-Identifier: Apache-2.0
"""The completion scripts, run by the shells that they are for."""

import os
import pathlib
import pty
import select
import shutil
import subprocess
import time

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


def test_bash_completes_the_options_of_a_verb(tmp_path):
    assert complete(tmp_path, "cache", "ls", "--j") == {"--json"}
    assert complete(tmp_path, "k8s", "--im") == {"--image"}
    assert complete(tmp_path, "doctor", "-n") == set()
    assert complete(tmp_path, "--im") == set()


def test_bash_completes_values(tmp_path):
    assert complete(tmp_path, "--transport", "") == {"auto", "ssh", "command"}
    assert complete(tmp_path, "cache", "") == {"ls", "clean"}
    assert complete(tmp_path, "explain", "E_SSH_A") == {"E_SSH_AUTH"}
    assert complete(tmp_path, "explain", "D_SH") == {"D_SHARED_MEMORY", "D_SHM"}
    assert {"SIGKILL", "125", "xid79", "events"} <= complete(tmp_path, "explain", "")


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


def typed_in_zsh(tmp_path, line, wanted):
    """What an interactive zsh makes of a line with tabs in it: its command's words are printed behind "GOT "."""
    (tmp_path / "_horarun").write_text(script("zsh"))
    setup = f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -D -u; horarun() {{ print -r -- GOT $* }}\n"
    child, terminal = pty.fork()
    if child == 0:
        os.execve(shutil.which("zsh"), ["zsh", "-f", "-i"], {"HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    try:
        os.write(terminal, (setup + line + "\n").encode())
        printed, end = b"", time.monotonic() + 60
        while wanted.encode() not in printed and select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
            printed += os.read(terminal, 4096)
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return printed.decode()


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes_what_follows_a_verb(tmp_path):
    wanted = "GOT explain D_SHARED_MEMORY"
    assert wanted in typed_in_zsh(tmp_path, "horarun explain D_SHA\t", wanted)
    wanted = "GOT cache ls --json"
    assert wanted in typed_in_zsh(tmp_path, "horarun cache ls --j\t", wanted)


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes_what_follows_a_verb(tmp_path):
    (tmp_path / "script").write_text(script("fish"))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {tmp_path}/script; complete -C 'horarun explain D_SHA'"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )
    assert done.stdout.split() == ["D_SHARED_MEMORY"], done
