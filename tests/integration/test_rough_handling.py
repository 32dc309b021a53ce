# SPDX-License-Identifier: Apache-2.0
"""Unusual streams, files and accounts."""

import ctypes
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess

import pytest

import jobs


def run(horarun, redirections, *arguments):
    """horarun from a shell, which closes streams."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {redirections}', horarun.path, *arguments], capture_output=True, timeout=60
    )


@pytest.mark.parametrize("redirections", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_not_an_output(horarun, redirections):
    """Its number must not go to a socket of horarun's, and the ranks' lines into that."""
    done = run(horarun, redirections, "-np", "2", "echo", "x")
    assert done.returncode == 125 and done.stdout == b""
    if "2>" not in redirections:
        assert b"standard output: Bad file descriptor [E_OUTPUT]" in done.stderr


def test_a_closed_input_is_empty(horarun):
    done = run(horarun, "<&-", "-np", "1", "sh", "-c", "cat; echo end")
    assert done.returncode == 0 and done.stdout == b"[0]<stdout>:end\n"


@pytest.mark.parametrize("arguments", [["--help=all"], ["completion", "bash"], ["explain"]])
def test_a_full_disk_is_reported(horarun, arguments):
    done = run(horarun, ">/dev/full", *arguments)
    assert done.returncode == 125 and b"No space left on device" in done.stderr


def test_unread_errors_are_not_a_success(horarun):
    done = run(horarun, "2>/dev/full", "-np", "1", "sh", "-c", "echo lost >&2")
    assert done.returncode == 125, done
    done = run(horarun, "2>&-", "-np", "1", "sh", "-c", "echo not wanted >&2; echo wanted")
    assert (done.returncode, done.stdout) == (0, b"[0]<stdout>:wanted\n"), done


def test_limits_of_file_size_and_time(horarun, tmp_path):
    def limited(limit, *arguments):
        return subprocess.run(
            ["sh", "-c", f'ulimit {limit}; exec "$0" "$@"', horarun.path, *arguments],
            capture_output=True,
            timeout=60,
            cwd=tmp_path,
        )

    done = limited("-f 8", "-np", "1", "sh", "-c", "exec head -c 100000 /dev/zero >file")
    assert done.returncode == 153 and b"(ulimit -f)" in done.stderr, done
    with open(tmp_path / "out", "wb") as out:
        done = subprocess.run(
            ["sh", "-c", 'ulimit -f 8; exec "$0" "$@"', horarun.path, "-np", "1", "head", "-c", "100000", "/dev/zero"],
            stdout=out,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert done.returncode == 125 and b"File too large" in done.stderr and b"[E_OUTPUT]" in done.stderr, done
    done = horarun.run("-np", "1", "sh", "-c", "ulimit -S -t 1; while :; do :; done").expect(152)
    assert "(ulimit -t)" in done.messages, done
    # At the hard limit the kernel kills at once.
    done = horarun.run("-np", "1", "bash", "-c", "ulimit -t 1; while :; do :; done").expect(137)
    assert "the 1 s of CPU time that its limit allows (ulimit -t)" in done.messages, done
    assert "out-of-memory" not in done.messages, done


def test_without_proc(horarun, own_world):
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount -t tmpfs x /proc; exec "$0" "$@"',
            horarun.path,
            "-np",
            "1",
            "id",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 125 and "is /proc mounted here?" in done.stderr, done


# Newer than many a sandbox; all machines number those above 423 alike.
NEW_CALLS = {
    "clone3": 435,
    "faccessat2": 439,
    "openat2": 437,
    "statx": {"x86_64": 332, "aarch64": 291}.get(os.uname().machine, -1),
    "close_range": 436,
    "pidfd_open": 434,
}


def sandbox(*names):
    """A seccomp filter, as a container's, that answers these system calls with EPERM."""

    def enter():
        load, jump, answer = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
        code = [(load, 0, 0, 0)]
        for name in names:
            code += [(jump, 0, 1, NEW_CALLS[name]), (answer, 0, 0, 0x00050000 | errno.EPERM)]
        code.append((answer, 0, 0, 0x7FFF0000))
        instructions = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
        program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(instructions))
        libc = ctypes.CDLL(None, use_errno=True)
        for arguments in ((38, 1, 0, 0, 0), (22, 2, program)):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
            if libc.prctl(*arguments) != 0:
                raise OSError(ctypes.get_errno(), "prctl")

    return enter


def test_a_sandbox_that_refuses_new_system_calls(horarun, tmp_path):
    calls = [name for name in NEW_CALLS if name != "clone3" and NEW_CALLS[name] > 0]
    (tmp_path / "hosts.sh").write_text("#!/bin/sh\necho localhost:2\n")
    (tmp_path / "hosts.sh").chmod(0o755)
    for options in (("-np", 2), ("-H", "localhost:2"), ("-np", 2, "--host-discovery-script", tmp_path / "hosts.sh")):
        done = horarun.run(*options, "/bin/sh", "-c", "echo ran", cwd=tmp_path, preexec_fn=sandbox(*calls))
        assert done.expect(0).text.count("ran") == 2, done
    denied = tmp_path / "denied"
    denied.write_text("#!/bin/sh\n")
    done = horarun.run("-np", 1, denied, preexec_fn=sandbox(*calls)).expect(126)
    assert "E_NOT_EXECUTABLE" in done.messages, done


def test_a_sandbox_that_forbids_threads_is_named(horarun):
    """The C library makes threads by clone3, and by clone only where the kernel does not know clone3."""
    done = horarun.run("-np", 1, "true", preexec_fn=sandbox("clone3"))
    assert done.code == 0 or (done.code == 125 and "seccomp filter answers clone3() with EPERM" in done.messages), done


def test_scripts_with_lines_of_windows(horarun, tmp_path):
    for shebang in ("#!/bin/sh", "#!/usr/bin/env sh"):
        script = tmp_path / "script"
        script.write_bytes(f"{shebang}\r\necho localhost:1\r\n".encode())
        script.chmod(0o755)
        for options in (("--host-discovery-script", script, "-np", 1), ("--rsh", script, "-H", "a:1")):
            done = horarun.run(*options, "true").expect(125)
            assert f"the lines of {script} end in a carriage return" in done.messages, done
        done = horarun.run("-np", 1, script).expect(127)
        assert re.search(r"lines? .*ends? in a carriage return", done.messages), done
    # As text they are read like others.
    files = {
        "hosts": "localhost slots=2\r\n",
        "ranks": "rank 0=localhost slot=0\r\nrank 1=localhost slot=0\r\n",
        "env": "A=1\r\nB=2\r\n",
        "programs": "-np 1 sh -c 'echo $A$B.'\r\n-np 1 sh -c 'echo $A$B.'\r\n",
        "hora.yaml": "horarun:\r\n  env-file: env\r\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode())
    for options in (("--hostfile", "hosts"), ("--rankfile", "ranks")):
        done = horarun.run(*options, "sh", "-c", "echo $A$B.", cwd=tmp_path).expect(0)
        assert done.ranks() == {0: ["12."], 1: ["12."]}, done
    done = horarun.run("--programs", "programs", cwd=tmp_path).expect(0)
    assert done.ranks() == {0: ["12."], 1: ["12."]}, done


def cpu_groups(quotas):
    """A group in a group ..., of the kind that this machine has, with these quotas of CPUs; None: without one."""
    period = 100_000
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu"):
        made = []
        try:
            for quota in quotas:
                made.append(f"{made[-1] if made else root}/hora-test-cpu-{os.getpid()}")
                os.mkdir(made[-1])
                if quota and os.path.exists(f"{made[-1]}/cpu.max"):
                    pathlib.Path(made[-1], "cpu.max").write_text(f"{int(quota * period)} {period}")
                elif quota:
                    with open(f"{made[-1]}/cpu.cfs_quota_us", "r+", encoding="utf-8") as file:
                        file.write(str(int(quota * period)))
            return made
        except OSError:
            for folder in reversed(made):
                if os.path.isdir(folder):
                    os.rmdir(folder)
    return pytest.skip("no CPU cgroup can be made here")


@pytest.mark.skipif(os.cpu_count() < 2, reason="one CPU")
@pytest.mark.parametrize("quotas, threads", [([1], 1), ([1.5], 1), ([1, None], 1), ([2, 1], 1), ([2], 2)])
def test_a_quota_of_cpus_limits_threads(horarun, quotas, threads):
    folders = cpu_groups(quotas)

    def join():
        pathlib.Path(folders[-1], "cgroup.procs").write_text(str(os.getpid()))

    try:
        show = ("sh", "-c", "echo $OMP_NUM_THREADS")
        done = horarun.run("-np", 1, "--verbose", *show, preexec_fn=join).expect(0)
        cores = int(horarun.run("-np", 1, *show).expect(0).ranks()[0][0])
        assert done.ranks() == {0: [str(min(threads, cores))]}, done
        # What is typed wins.
        done = horarun.run("-np", 1, "-x", "OMP_NUM_THREADS=7", *show, preexec_fn=join).expect(0)
        assert done.ranks() == {0: ["7"]}, done
    finally:
        for folder in reversed(folders):
            jobs.wait_until(
                lambda folder=folder: not pathlib.Path(folder, "cgroup.procs").read_text(), "it to be empty"
            )
            os.rmdir(folder)


@pytest.mark.parametrize("kilobytes", [20_000, 30_000])
def test_a_small_address_space(horarun, kilobytes):
    """There will never be room, first for the stacks of threads, then for more: the error says at once what is
    missing."""
    done = subprocess.run(
        ["sh", "-c", f'ulimit -s 8192; ulimit -v {kilobytes}; exec "$0" "$@"', horarun.path, "-np", "2", "--smoke"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (1, 125), done
    assert re.search(rb"no memory (for the stack of a thread )?is left \(.*ulimit -v\)", done.stderr), done


def test_a_smoke_test_without_memory(horarun):
    """Its own threads or tensors are too large for the limit, which the library next to it keeps."""
    line = f"ulimit -c 0; ulimit -v 40000; exec {os.path.dirname(horarun.path)}/hora-smoke"
    done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1, done
    assert re.search(rb"error: no memory .*ulimit -v\)", done.stderr), done


def test_a_small_stack(horarun, hosts):
    """Threads take the limit for the size of their own stacks."""
    up = hosts(2)
    done = subprocess.run(
        [
            "sh",
            "-c",
            'ulimit -s 64; exec "$0" "$@"',
            horarun.path,
            "-H",
            f"localhost:1,{up.names[0]}:1",
            "sh",
            "-c",
            "echo whole",
        ],
        cwd="/",
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0 and done.stdout.count(b"whole") == 2, done


@pytest.mark.parametrize("name,why", [("no/such.json", "No such file or directory"), ("dir.html", "Is a directory")])
def test_a_report_that_cannot_be_written_starts_nothing(horarun, tmp_path, name, why):
    (tmp_path / "dir.html").mkdir()
    done = horarun.run("--report", str(tmp_path / name), "-np", "1", "touch", str(tmp_path / "ran"))
    assert done.code == 2 and name in done.messages and why in done.messages
    assert not (tmp_path / "ran").exists()


def test_a_report_goes_through_links_and_into_devices(horarun, tmp_path):
    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    horarun.run("--report", str(tmp_path / "link.json"), "-np", "1", "true").expect()
    assert (tmp_path / "link.json").is_symlink() and json.loads((tmp_path / "real.json").read_text())["schema"] == 1
    os.mknod(tmp_path / "null.json", 0o666 | stat.S_IFCHR, os.makedev(1, 3)) if os.geteuid() == 0 else pytest.skip(
        "root"
    )
    horarun.run("--report", str(tmp_path / "null.json"), "-np", "1", "true").expect()
    assert stat.S_ISCHR(os.stat(tmp_path / "null.json").st_mode)


def test_a_report_follows_no_link_in_a_world_writable_folder(horarun, tmp_path):
    """Others may guess the name under which it is written, and have put a link or a file of theirs there."""
    (tmp_path / "victim").write_text("precious")
    done = subprocess.run(
        ["sh", "-c", 'ln -s victim "$1.$$"; exec "$0" --report "$1" -np 1 true', horarun.path, "report.json"],
        capture_output=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 0 and json.loads((tmp_path / "report.json").read_text())["schema"] == 1, done
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_report_pipe_that_is_not_read_to_its_end(horarun, tmp_path):
    """Its reader is there and reads nothing: the job's end does not wait for it."""
    pipe = str(tmp_path / "pipe.json")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        done = horarun.run("--report", pipe, "-np", "1", "true", "x" * 10_000).expect(125)
    finally:
        os.close(reader)
    assert "it was not read for" in done.messages and "[E_REPORT]" in done.messages, done


def test_an_output_file_that_is_a_pipe(horarun, tmp_path):
    """Without a reader: an error at once. With a reader: it gets the rank's lines."""
    (tmp_path / "rank.0").mkdir()
    pipe = str(tmp_path / "rank.0" / "stdout")
    os.mkfifo(pipe)
    done = horarun.run("--output-filename", tmp_path, "-np", "1", "touch", tmp_path / "ran").expect(2)
    assert f"{pipe} is a pipe without a reader" in done.messages and not (tmp_path / "ran").exists(), done
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        horarun.run("--output-filename", tmp_path, "-np", "1", "echo", "ok").expect(0)
        assert os.read(reader, 100) == b"[0]<stdout>:ok\n"
    finally:
        os.close(reader)


def test_a_pipe_is_not_shipped(horarun, tmp_path):
    os.mkfifo(tmp_path / "it")
    done = horarun.run("--ship", str(tmp_path / "it"), "-np", "1", "true")
    assert done.code == 125 and f"{tmp_path}/it is not a file; expected a file or a folder [E_SHIP]" in done.messages


def test_an_empty_folder_is_shipped(horarun, tmp_path):
    (tmp_path / "it").mkdir()
    horarun.run("--ship", str(tmp_path / "it"), "-np", "1", "sh", "-c", "test -d it && ! ls -A it | grep .").expect(0)


def test_a_file_too_large_to_ship(horarun, tmp_path):
    with open(tmp_path / "data", "wb") as file:
        file.truncate(3 << 30)
    done = horarun.run("--ship", str(tmp_path / "data"), "-np", "1", "true")
    assert done.code == 125 and "has 3072 MiB; at most 1024 MiB are sent" in done.messages


def test_a_host_list_without_an_end(horarun):
    done = horarun.run("--hostfile", "/dev/zero", "true")
    assert done.code == 2 and "/dev/zero is larger than" in done.messages


def test_one_host_by_a_transport_without_addresses(horarun, hosts):
    up = hosts(2)
    pid = up._hosts.init_pid(1)
    enter = f"nsenter -t {pid} -m -u -i -n -p --wd=/ -- env -i HOME=/root PATH=/usr/bin:/bin sh -c"
    script = f'shift; exec {enter} "$*"'
    done = horarun.run(
        "--rsh",
        f"sh -c '{script}' sh",
        "-H",
        "node1:2",
        "bash",
        "-c",
        "exec 3<>/dev/tcp/$HOROVOD_GLOO_RENDEZVOUS_ADDR/$HOROVOD_GLOO_RENDEZVOUS_PORT && echo met",
    ).expect()
    assert done.text.count("met") == 2


def test_without_any_environment(horarun):
    """As a shell would: a PATH where there is none."""
    done = subprocess.run([horarun.path, "-np", "1", "sh", "-c", "ls -d /"], env={}, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"[0]<stdout>:/\n"), done


def test_an_account_without_a_name(horarun, hosts):
    """A container's uid that is in no passwd: neither a home folder nor a user name."""
    if os.geteuid() != 0:
        pytest.skip("root")
    if (
        subprocess.run(
            ["setpriv", "--reuid", "54321", "--clear-groups", "test", "-x", horarun.path], timeout=60
        ).returncode
        != 0
    ):
        pytest.skip("this folder is closed to other users")
    up, state = hosts(2), os.environ.get("HORA_HOSTS_STATE", "/run/hora-hosts")
    own = pathlib.Path(f"/run/own{os.getpid()}")  # pytest's own folders are closed to others
    own.mkdir()
    try:
        for name in ("key", "known_hosts"):
            shutil.copy(f"{state}/{name}", own / name)
        (own / "config").write_text(f"Host *\n IdentityFile {own}/key\n UserKnownHostsFile {own}/known_hosts\n")
        for path in (own, *own.iterdir()):
            os.chown(path, 54321, 54321)

        def launch(host):
            return subprocess.run(
                [horarun.path, "--ssh-config-file", own / "config", "-H", f"{host}:1", "echo", "ok"],
                cwd="/",
                env={"PATH": "/usr/bin:/bin"},
                user=54321,
                group=54321,
                extra_groups=[],
                capture_output=True,
                timeout=60,
            )

        done = launch(f"root@{up.names[0]}")
        assert (done.returncode, done.stdout) == (0, b"[0]<stdout>:ok\n"), done
        done = launch(up.names[0])
        assert done.returncode == 125 and b"uid 54321 has no user name in the password database" in done.stderr
    finally:
        shutil.rmtree(own)


@pytest.mark.parametrize("backend, threads", [("shm", 4), ("tcp", 4), ("gloo", 6)])
def test_a_thread_that_the_kernel_refuses_for_the_moment(horarun, build, tmp_path, backend, threads):
    """As where as many processes run as the machine allows: each of the guard's, Gloo's and the runtime's threads of
    two ranks."""
    tracer = os.path.join(build, "bin", "fault_tracer")
    if not os.access(tracer, os.X_OK) or os.uname().machine != "x86_64":
        pytest.skip("no fault_tracer in this build")
    launcher, horarun.path, log = horarun.path, tracer, tmp_path / "log"
    for number in range(1, threads + 1):
        done = horarun.run(
            "rank",
            "clone3",
            "EAGAIN",
            number,
            log,
            "--",
            launcher,
            "-np",
            2,
            "hora-perf",
            "barrier",
            "--iterations",
            1,
            env={"HORA_BACKENDS": backend},
        )
        if done.code == 77:
            pytest.skip(f"no process can be traced here: {done.messages}")
        if "struck clone3" not in log.read_text():
            pytest.skip("this C library makes threads by another call")
        done.expect(0)
