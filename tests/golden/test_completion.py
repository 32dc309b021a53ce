# SPDX-License-Identifier: Apache-2.0
"""What tabs make of a line in real shells, in a terminal, with the scripts that horarun prints."""

import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest

HORARUN = os.environ["HORARUN"]
BASH_COMPLETION = pathlib.Path("/usr/share/bash-completion/bash_completion")
# Runs the completer; a line that is entered is printed instead, a word between brackets each.
WRAPPER = f"""#!/bin/sh
[ "$1 $2" != "completion --" ] || exec {HORARUN} "$@"
printf 'GOT '; printf '[%s]' "$@"; echo ' END'
"""


def script(shell):
    return subprocess.run([HORARUN, "completion", shell], check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def home(tmp_path):
    """A folder with hosts that ssh knows, files to complete, and a horarun that shows its words."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host alpha *.example\n  User me\nHost beta\n")
    (tmp_path / ".ssh/known_hosts").write_text(
        "gamma,10.0.0.7 ssh-ed25519 AAAA\n|1|hashed= ssh-rsa AAAA\n[delta]:22 ssh-rsa A\n"
    )
    (tmp_path / "bin").mkdir()
    for name, text in (("horarun", WRAPPER), ("trainer", "#!/bin/sh\n")):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "work/folder").mkdir(parents=True)
    for name in ("train.py", "hosts.txt", "my data.csv", "--np"):
        (tmp_path / "work" / name).touch()
    return tmp_path


class Bash:
    argv = ("bash", "--noprofile", "--norc", "-i")

    def setup(self, home):
        (home / "script").write_text(script("bash"))
        return f"{self.library()}source {home}/script; bind 'set enable-bracketed-paste off'"

    def library(self):
        return ""


class BashWithLibrary(Bash):
    """With the package bash-completion, which knows what follows many programs."""

    def library(self):
        return f"source {BASH_COMPLETION}; "


class Zsh:
    argv = ("zsh", "-f", "-i")

    def setup(self, home):
        (home / "_horarun").write_text(script("zsh"))
        return f"fpath=({home} $fpath); autoload -Uz compinit; compinit -D -u; unset zle_bracketed_paste"


class Fish:
    argv = ("fish", "--private", "-i")

    def setup(self, home):
        folder = home / ".config/fish/completions"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "horarun.fish").write_text(script("fish"))
        return "function fish_prompt; echo -n PROM''PT; end"


def missing(shell):
    if shutil.which(shell.argv[0]) is None:
        return f"{shell.argv[0]} is not installed"
    if shell is BashWithLibrary and not BASH_COMPLETION.exists():
        return "the package bash-completion is not installed"
    return None


SHELLS = [
    pytest.param(
        shell, id=shell.__name__, marks=pytest.mark.skipif(missing(shell) is not None, reason=str(missing(shell)))
    )
    for shell in (Bash, BashWithLibrary, Zsh, Fish)
]
shells = pytest.mark.parametrize("shell", SHELLS)


class Terminal:
    """An interactive shell in a terminal of 200 columns."""

    def __init__(self, shell, home):
        environment = {
            "HOME": str(home),
            "PATH": f"{home}/bin:/usr/bin:/bin",
            "TERM": "dumb" if shell is Fish else "xterm",
            "LC_ALL": "C.UTF-8",
            "COLUMNS": "200",
        }
        self.printed = ""
        self.is_fish = shell is Fish
        setup = shell().setup(home)
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.chdir(home / "work")
            os.execvpe(shell.argv[0], shell.argv, environment)
        self.type(setup + "; echo RE''ADY\n")
        self.wait_for_command("READY")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait(self, pattern):
        """Returns the match in what was printed, and forgets all up to its end."""
        end = time.monotonic() + 60
        while (found := re.search(pattern, self.printed)) is None:
            assert select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0], self.printed
            self.printed += os.read(self.terminal, 65536).decode(errors="replace")
        self.printed = self.printed[found.end() :]
        return found

    def wait_for_command(self, pattern):
        """As wait(), for what a command prints. Fish may take a tab that it gets before its next prompt for a blank."""
        found = self.wait(pattern)
        if self.is_fish:
            self.wait("PROMPT")
        return found

    def close(self):
        os.kill(self.child, signal.SIGKILL)
        os.close(self.terminal)
        os.waitpid(self.child, 0)


@pytest.fixture
def tab(home):
    """tab(shell, "-np 2 tr\\t") is the list of words that horarun would get."""
    open_terminals = {}

    def complete(shell, line):
        if shell not in open_terminals:
            open_terminals[shell] = Terminal(shell, home)
        terminal = open_terminals[shell]
        terminal.type(f"horarun {line}\n")
        return re.findall(r"\[(.*?)\]", terminal.wait_for_command(r"GOT ((?:\[[^\]]*\])*) END").group(1))

    yield complete
    for terminal in open_terminals.values():
        terminal.close()


@shells
def test_options_stand_before_the_program_only(shell, tab):
    assert tab(shell, "--start-t\t5 true") == ["--start-timeout", "5", "true"]
    assert tab(shell, "-np 2 python3 tra\t") == ["-np", "2", "python3", "train.py"]
    assert tab(shell, "-np 2 python3 train.py --start-t\tx")[-1] == "--start-tx"
    assert tab(shell, "-np 2 trainer tra\t") == ["-np", "2", "trainer", "train.py"]
    assert tab(shell, "-np 2 trainer --data tra\t")[-1] == "train.py"
    assert tab(shell, "-np 2 -- trainer tra\t")[-1] == "train.py"


@shells
def test_the_program_is_one_of_the_path_or_a_file(shell, tab):
    assert tab(shell, "-np 2 traine\t") == ["-np", "2", "trainer"]
    assert tab(shell, "-np 2 ./trai\t") == ["-np", "2", "./train.py"]
    assert tab(shell, "-np 1 trainer : -np 1 traine\t")[-1] == "trainer"
    assert tab(shell, "-np 1 trainer : --env-f\thosts.txt trainer")[4:] == ["--env-file", "hosts.txt", "trainer"]


@shells
def test_values_of_options(shell, tab):
    assert tab(shell, "--hostfile hos\ttrue") == ["--hostfile", "hosts.txt", "true"]
    assert tab(shell, "--hostfile=hos\ttrue") == ["--hostfile=hosts.txt", "true"]
    assert tab(shell, "--ship my\ttrue")[:2] == ["--ship", "my data.csv"]
    assert tab(shell, "--wdir fol\t")[:1] == ["--wdir"]
    assert tab(shell, "--wdir=fol\t")[0].rstrip("/") == "--wdir=folder"
    assert tab(shell, "--transport com\ttrue") == ["--transport", "command", "true"]
    assert tab(shell, "--transport=com\ttrue") == ["--transport=command", "true"]
    assert tab(shell, "--map-by rankfile:file=hos\ttrue")[1] == "rankfile:file=hosts.txt"
    assert tab(shell, "-x HOM\t") == ["-x", "HOME"]


@shells
def test_hosts_are_those_that_ssh_knows(shell, tab):
    assert tab(shell, "-H alp\t") == ["-H", "alpha"]
    assert tab(shell, "-H alpha:2,be\t") == ["-H", "alpha:2,beta"]
    assert tab(shell, "--hosts=alpha,gam\t") == ["--hosts=alpha,gamma"]
    assert tab(shell, "doctor -H bet\t") == ["doctor", "-H", "beta"]


@shells
def test_verbs_and_what_follows_them(shell, tab):
    assert tab(shell, "doct\t") == ["doctor"]
    assert tab(shell, "doctor --de\t") == ["doctor", "--deep"]
    assert tab(shell, "doctor --dry\tx")[-1] == "--dryx"
    assert tab(shell, "cache cl\t--older\t1d") == ["cache", "clean", "--older-than", "1d"]
    assert tab(shell, "explain D_SHA\t") == ["explain", "D_SHARED_MEMORY"]
    assert tab(shell, "help rend\t") == ["help", "rendezvous"]
    assert tab(shell, "completion fi\t") == ["completion", "fish"]
    assert tab(shell, "timeline me\thos\t-o x") == ["timeline", "merge", "hosts.txt", "-o", "x"]
    assert tab(shell, "k8s --imag\tx trainer tra\t") == ["k8s", "--image", "x", "trainer", "train.py"]


@pytest.mark.skipif(missing(Fish) is not None, reason=str(missing(Fish)))
def test_descriptions_are_shown(home):
    """By fish's own list, which shows what a tab would offer."""
    (home / "script").write_text(script("fish"))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {home}/script; complete -C 'horarun --start-t'"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(home), "PATH": f"{home}/bin:/usr/bin:/bin"},
    )
    assert done.stdout.startswith("--start-timeout\ttime limit of the start"), done


def offered(home, *words):
    """What horarun offers for the last word, without descriptions."""
    done = subprocess.run(
        [HORARUN, "completion", "--", *words],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
    )
    assert done.stderr == ""
    return {line.split("\t")[0] for line in done.stdout.split("\n")[2:]} - {""}


def test_what_is_offered(home):
    assert {"-np", "-H", "--hosts"} <= offered(home, "-")
    assert offered(home, "doctor", "-n") == set()
    assert offered(home, "--im") == set()
    assert offered(home, "--transport", "") == {"auto", "ssh", "command"}
    assert offered(home, "cache", "") == {"ls", "clean"}
    assert {"SIGKILL", "125", "xid79", "events"} <= offered(home, "explain", "")
    assert offered(home, "-H", "") == {"alpha", "beta", "gamma", "10.0.0.7"}
    assert offered(home, "--exclude", "alpha@be") == {"alpha@beta"}
    assert offered(home, "-Ha:2,be") == {"-Ha:2,beta"}
    assert offered(home, "a", ":", "-") == {
        "-np", "--num-proc", "--np", "-n", "--ntasks", "-m", "--module", "-x", "--env", "--env-file"
    }  # fmt: skip
    assert offered(home) == offered(home, "train.py", "") == set()
