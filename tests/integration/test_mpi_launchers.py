# SPDX-License-Identifier: Apache-2.0
"""The mpiruns of today, each that is installed: those of the system, and those of HORA_MPI_LAUNCHERS (default
build/mpi-launchers), where `scripts/ci mpi-launchers` puts the wheels of PyPI. The table "What each mpirun does" of
docs/reference/mpi.md says what is right."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FOLDER = pathlib.Path(os.environ.get("HORA_MPI_LAUNCHERS", REPOSITORY / "build" / "mpi-launchers"))
# Where scripts/ci mpi-launchers has installed others than those of the distribution.
SHOWN = {"show": FOLDER} if FOLDER.is_dir() else {}
PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
DEADLINE_S = 120
KEY = "/run/hora-hosts/key"


class Launcher:
    """An mpirun and what comes with it."""

    def __init__(self, mpirun, compiler):
        self.mpirun, self.compiler = pathlib.Path(mpirun), compiler
        # Intel's is a script that finds its mpiexec.hydra in $PATH.
        environment = {**os.environ, "PATH": f"{self.mpirun.parent}:/usr/bin:/bin"}
        command = [mpirun, "--version"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment).stdout
        marks = (("Intel MPI", "Intel(R) MPI"), ("Open MPI", "(Open"), ("MPICH", "HYDRA"))
        self.kind = next(kind for kind, mark in marks if mark in said)
        self.version = re.search(r"(?:\(Open[^)]*\)|Version:?) *(\d+(?:\.\d+)*)", said)[1]
        self.is_open_mpi = self.kind == "Open MPI"
        self.major = int(self.version.split(".")[0])

    def __str__(self):
        return f"{self.kind} {self.version}".replace(" ", "-")

    def path(self, folder):
        """A $PATH whose mpirun it is."""
        if self.mpirun.name == "mpirun":
            return f"{self.mpirun.parent}:/usr/bin:/bin"
        link = folder / "path" / "mpirun"
        link.parent.mkdir(exist_ok=True)
        if not link.exists():  # Hydra looks for its parts next to itself, so a link would not do
            link.write_text(f'#!/bin/sh\nexec {self.mpirun} "$@"\n')
            link.chmod(0o755)
        return f"{link.parent}:/usr/bin:/bin"

    def hosts(self, ranks, names="localhost"):
        """Its own options for this many ranks on each of these hosts."""
        names = names.split(",")
        if self.is_open_mpi:
            slots = ",".join(f"{name}:{ranks}" for name in names)
            return ["--allow-run-as-root", "-np", ranks * len(names), "-H", slots]
        return ["-np", ranks * len(names), "-ppn", ranks, "-hosts", ",".join(names)]


def find_launchers():
    found = []
    for mpirun, compiler in (
        ("/usr/bin/mpirun.openmpi", "mpicc.openmpi"),
        ("/usr/bin/mpiexec.hydra", "mpicc.mpich"),
        *((str(each), str(each.with_name("mpicc"))) for each in sorted(FOLDER.glob("*/bin/mpirun"))),
    ):
        if os.access(mpirun, os.X_OK):
            found.append(Launcher(mpirun, shutil.which(compiler)))
    return found


@pytest.fixture(scope="module", params=find_launchers(), ids=str)
def launcher(request):
    return request.param


class Runner:
    """horarun --mpi, and the launcher itself, in one environment."""

    def __init__(self, horarun, launcher, folder):
        self.horarun, self.launcher, self.folder = horarun, launcher, folder
        # What the libfabric of the wheels' Intel MPI is for is not here: its ranks share a host.
        self.variables = {"PATH": launcher.path(folder), "I_MPI_FABRICS": "shm"}

    def mpi(self, *arguments, env=None, **options):
        return self.horarun.run("--mpi", *arguments, env={**self.variables, **(env or {})}, **options)

    def plain(self, *arguments, env=None, **options):
        return subprocess.run(
            [self.variables["PATH"].split(":")[0] + "/mpirun", *map(str, arguments)],
            env={**os.environ, **self.variables, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            cwd="/",
            **options,
        )


@pytest.fixture
def runner(horarun, launcher, tmp_path):
    return Runner(horarun, launcher, tmp_path)


def untagged(text):
    """The lines without the tags of the launcher, sorted."""
    return sorted(re.sub(r"^\[(\d+|\d+,\d+)\](<std...>:)? ?", "", line) for line in text.splitlines())


def expected_cells(launcher):
    """The column of the table that is for this launcher: row -> cell."""
    page = (REPOSITORY / "docs" / "reference" / "mpi.md").read_text()
    section = page[page.index("### What each mpirun does") :]
    lines = [line for line in section[: section.index("\n## ")].splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    title = f"{launcher.kind} {launcher.major}" if launcher.is_open_mpi else launcher.kind
    column = rows[0].index(title)
    return {row[0]: row[column] for row in rows[2:]}


RANK = "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"


def exit_codes(runner):
    def code(*command, options=()):
        return str(runner.mpi("-np", 2, *options, *command).code)

    return {
        "exit code: a rank exits with 7": code("sh", "-c", "exit 7"),
        "a rank is killed by SIGKILL": code("sh", "-c", f"[ {RANK} = 0 ] || kill -9 $$; exec sleep 60"),
        "there is no such program": code("no-such-program"),
        "the program is not executable": code("/etc/passwd"),
        "the time of `--timeout` is over": code("sleep", 60, options=["--timeout", "2s"]),
    }


def streams(runner):
    def is_terminal(number):
        done = runner.mpi("-np", 2, "sh", "-c", f"if [ -t {number} ]; then echo a terminal; else echo a pipe; fi")
        (said,) = set(untagged(done.expect(0).text))
        return said

    first = runner.mpi("-np", 2, "sh", "-c", f'if [ {RANK} = 0 ]; then read a && echo "got $a"; fi', input=b"x\n")
    everyone = runner.mpi("-np", 2, "--stdin", "all", "sh", "-c", 'read a && echo "got $a"', input=b"x\n")
    none = runner.mpi("-np", 2, "--stdin", "none", "sh", "-c", f"if [ {RANK} = 0 ]; then cat; fi", input=b"x\n")
    return {
        "stdout of a rank": is_terminal(1),
        "stderr of a rank": is_terminal(2),
        "stdin of rank 0": {("got x",): "that of `horarun`"}.get(tuple(untagged(first.text)), str(first)),
        "`--stdin all`": "refused" if everyone.code == 2 else " ".join(untagged(everyone.text)),
        "`--stdin none`": {(0, ""): "empty"}.get((none.code, none.text), str(none)),
    }


def files(runner):
    place = runner.folder / "files"
    done = runner.mpi("-np", 2, "--output-filename", place, "sh", "-c", "echo out; echo error >&2")
    if done.code == 2:
        return {"`--output-filename DIR`": "refused"}
    done.expect(0)
    written = {str(each.relative_to(place)): each.read_text() for each in place.rglob("*") if each.is_file()}
    assert sorted(written) == [f"rank.{rank}/{name}" for rank in range(2) for name in ("stderr", "stdout")], written
    tagged = any(text.startswith("[") for text in written.values())
    assert untagged("".join(written.values())) == ["error", "error", "out", "out"], written
    return {
        "`--output-filename DIR`": ("with tags" if tagged else "without tags")
        + (", and printed" if done.out else ", not printed")
    }


def binding(runner):
    script = "import os; print(len(os.sched_getaffinity(0)))"
    counts = set(untagged(runner.mpi("-np", 2, "/usr/bin/python3", "-c", script).expect(0).text))
    return {"CPUs of a rank": "all" if counts == {str(len(os.sched_getaffinity(0)))} else str(counts)}


def variables(runner):
    command = ["sh", "-c", "echo $ONE $TWO $A_1 $A_2"]
    options = ["-x", "ONE=1", "-x", "TWO", "-x", "A_*"]
    done = runner.mpi("-np", 2, *options, *command, env={"TWO": "a 'b", "A_1": "c", "A_2": "d"})
    assert "warning" not in done.messages, done
    return {
        "`-x ONE=1 -x TWO -x 'A_*'`": {("1 a 'b c d",) * 2: "all arrive"}.get(tuple(untagged(done.text)), str(done))
    }


@pytest.mark.parametrize("cells", [exit_codes, streams, files, binding, variables], ids=lambda cells: cells.__name__)
def test_the_table_is_right(runner, cells):
    expected = expected_cells(runner.launcher)
    measured = cells(runner)
    wrong = {row: cell for row, cell in measured.items() if cell not in expected[row].split(" or ")}
    assert not wrong, {row: (cell, expected[row]) for row, cell in wrong.items()}


def test_the_cells_about_two_hosts(runner, hosts, shared):
    """Slots, and a folder that the hosts lack, which mpirun itself replaces by the home directory."""
    hosts(2, **SHOWN)
    expected = expected_cells(runner.launcher)
    only_here = runner.folder / "only-here"
    only_here.mkdir()
    done = runner.mpi("-np", 2, "-H", "node1:1,node2:1", "pwd", cwd=only_here)
    assert "[E_CWD]" in done.messages and str(done.code) == expected["a host lacks the working directory"], done
    command = ["--wdir", "/", "hostname"]
    done = runner.mpi("-np", 3, "-H", "node1:2,node2:1", *command)
    cell = "refused" if done.code == 2 else " ".join(untagged(done.text))
    assert cell == expected["`-np 3 -H node1:2,node2:1`"], done
    done = runner.mpi("-np", 4, "-H", "node1:2,node2:2", *command).expect(0)
    assert untagged(done.text) == ["node1", "node1", "node2", "node2"], done


def test_the_runtime_works_here(runner):
    done = runner.mpi("-np", 2, "--smoke").expect(0)
    assert "2 ranks on 1 host" in done.text and "all ok" in done.text, done


def test_the_runtime_works_on_two_hosts(runner, hosts):
    hosts(2, **SHOWN)
    done = runner.mpi("-np", 2, "-H", "node1:1,node2:1", "--wdir", "/", "--smoke", env={"I_MPI_FABRICS": "ofi"})
    assert "2 ranks on 2 hosts" in done.expect(0).text and "all ok" in done.text, done


@pytest.mark.parametrize("options", [["-i", KEY, "-p", 22], ["--rsh", f"ssh -i {KEY}"]], ids=lambda each: each[0])
def test_ssh_gets_the_options_of_the_user(runner, hosts, options):
    """The ssh that mpirun starts notes how it was called; an agent of 5.0 took "-mca" for nothing."""
    hosts(2, **SHOWN)
    note = runner.folder / "calls"
    ssh = runner.folder / "path" / "ssh"
    ssh.parent.mkdir(exist_ok=True)
    ssh.write_text(f'#!/bin/sh\necho "$*" >> {note}\nexec /usr/bin/ssh "$@"\n')
    ssh.chmod(0o755)
    path = f"{ssh.parent}:{runner.variables['PATH']}"
    spec = ["-np", 2, "-H", "node1:1,node2:1", "--transport", "ssh", "--wdir", "/"]
    if options[0] == "--rsh":
        spec = [word for word in spec if word not in ("--transport", "ssh")]
    done = runner.mpi(*spec, *options, "hostname", env={"PATH": path}).expect(0)
    assert untagged(done.text) == ["node1", "node2"], done
    for line in note.read_text().splitlines()[-2:]:
        assert f"-i {KEY}" in line, note.read_text()


def test_the_interfaces_that_the_user_chose_stay(runner, hosts):
    hosts(2, **SHOWN)
    done = runner.mpi(
        *["-np", 2, "-H", "node1:1,node2:1", "--wdir", "/", "sh", "-c", "echo $NCCL_SOCKET_IFNAME"],
        env={"NCCL_SOCKET_IFNAME": "^docker0,lo"},
    ).expect(0)
    assert untagged(done.text) == ["^docker0,lo"] * 2, done


def test_lines_of_python_stay_whole(runner):
    """Images of containers set PYTHONUNBUFFERED, with which each argument of print() is written by itself."""
    script = "for i in range(200): print('a', 'b', i, i, i)"
    done = runner.mpi("-np", 2, "/usr/bin/python3", "-c", script, env={"PYTHONUNBUFFERED": "1"}).expect(0)
    assert untagged(done.text) == sorted(f"a b {i} {i} {i}" for i in range(200) for _ in range(2)), done


def test_what_the_user_gives_mpirun_wins(runner):
    """Open MPI takes a parameter or an option that comes twice for an error."""
    if not runner.launcher.is_open_mpi:
        pytest.skip("of Open MPI")
    arguments = "-mca btl self,tcp --mca pml ob1 -bind-to none --tag-output"
    done = runner.mpi("-np", 2, "--mpi-args", arguments, "sh", "-c", "echo $OMPI_MCA_btl $OMPI_MCA_pml")
    assert untagged(done.expect(0).text) == ["self,tcp ob1"] * 2, done
    done = runner.mpi("-np", 2, "sh", "-c", "echo $OMPI_MCA_pml", env={"OMPI_MCA_pml": "cm"}).expect(0)
    assert untagged(done.text) == ["cm"] * 2, done


def test_several_horaruns_of_one_job_are_refused(runner):
    horarun = runner.horarun.path
    done = runner.plain(*runner.launcher.hosts(2), horarun, "-np", 2, "echo", "ran")
    assert "has started 2 of this horarun" in done.stderr and "ran" not in done.stdout, done
    assert done.returncode == 2, done
    (line,) = {each for each in done.stderr.splitlines() if each.endswith("echo ran") and "start one: " in each}
    words = line.partition("start one: ")[2].split()
    assert runner.horarun.run(*words[1:], env=runner.variables).expect(0).text.count("ran") == 2
    # The launcher's one rank is not the place of a rank of ours.
    done = runner.plain(*runner.launcher.hosts(1), horarun, "-np", 2, "sh", "-c", "echo $MPI_LOCALNRANKS.$PMI_SIZE.")
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["[0]<stdout>:..", "[1]<stdout>:.."], done


def bundle_of(build):
    return os.path.join(build, "share", "hora", os.uname().machine, "bundle")


def test_programs_of_the_runtime_under_the_launcher_itself(runner, build):
    done = runner.plain(*runner.launcher.hosts(2), bundle_of(build) + "/bin/hora-smoke")
    assert done.returncode == 0 and "2 ranks on 1 host" in done.stdout, done


def compiled(runner, name):
    if runner.launcher.compiler is None:
        pytest.skip("without a compiler")
    program = runner.folder / name
    command = [runner.launcher.compiler, "-o", program, PROGRAMS / f"{name}.c", "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    return program


def test_its_programs_without_it(runner):
    """--pmix or --pmi pmi1; under the other one each rank is a world of its own, which is said."""
    program = compiled(runner, "mpi_sum")
    right, wrong = ("pmix", "pmi1") if runner.launcher.is_open_mpi else ("pmi1", "pmix")
    done = runner.horarun.run("-np", 2, "--pmi", right, program).expect(0)
    assert untagged(done.text) == [f"rank {rank} of 2, 2 here: sum 3" for rank in range(2)], done
    assert "no rank has used the PMI" not in done.messages, done
    done = runner.horarun.run("-np", 2, "--pmi", wrong, program)
    if done.code == 0:
        assert "no rank has used the PMI that --pmi " + wrong in done.messages, done
        assert untagged(done.text) == ["rank 0 of 1, 1 here: sum 1"] * 2, done


def test_a_runtime_that_comes_after_mpi_leaves_its_goodbye_to_it(runner, build):
    """Hydra closes its connection at the first goodbye, and MPI_Finalize complained on each rank."""
    program = compiled(runner, "mpi_then_hora")
    library = bundle_of(build) + "/lib/libhora.so"
    done = runner.plain(*runner.launcher.hosts(2), program, library)
    assert done.returncode == 0 and done.stdout.count("size 2\n") == 2, done
    assert done.stderr == "", done
