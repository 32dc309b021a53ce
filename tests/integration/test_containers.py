# SPDX-License-Identifier: Apache-2.0
"""Ranks in images (docs/howto/containers.md): by Podman and Apptainer where they run, and by a double of Docker."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import jobs

BUSYBOX = "/bin/busybox"
TOOLS = ("sh", "cat", "env", "id", "ls", "pwd", "sleep", "test", "true", "stty", "kill")


@pytest.fixture(scope="module")
def rootfs(tmp_path_factory):
    """A folder with the root file system of a small image: a static busybox, and nothing else."""
    if not os.path.exists(BUSYBOX):
        pytest.skip("no busybox-static to make an image of")
    root = tmp_path_factory.mktemp("rootfs")
    root.chmod(0o755)
    for folder in ("bin", "tmp", "etc"):
        (root / folder).mkdir()
    shutil.copy(BUSYBOX, root / "bin" / "busybox")
    for tool in TOOLS:
        (root / "bin" / tool).symlink_to("busybox")
    (root / "etc" / "image").write_text("busybox\n")
    return root


@pytest.fixture(params=["podman", "apptainer"])
def image(request, rootfs, horarun):
    """The options for an image that a runtime here runs. $CONTAINERS_CONF has what only this machine needs."""
    runtime = request.param
    if "CONTAINERS_CONF" in os.environ:
        horarun.variables["CONTAINERS_CONF"] = os.environ["CONTAINERS_CONF"]
    if not shutil.which(runtime):
        pytest.skip(f"no {runtime} here")
    if runtime == "podman":
        enough = subprocess.run(
            ["podman", "run", "--rm", "--cgroups=disabled", "--network=host", "--rootfs", f"{rootfs}:O", "true"],
            capture_output=True,
            text=True,
        )
    else:
        enough = subprocess.run([runtime, "exec", rootfs, "true"], capture_output=True, text=True)
    if enough.returncode != 0:
        pytest.skip(f"{runtime} does not run here: {enough.stderr.strip()[-200:]}")
    yield ("--container", str(rootfs), "--container-runtime", runtime, "--start-timeout", "60s", "--runtime", "host")
    assert not containers(), "containers that outlived their job"


def containers():
    """Names of those that Podman knows, some seconds after the end of a job at the latest."""
    if not shutil.which("podman"):
        return []
    deadline = time.monotonic() + 20
    while True:
        listed = subprocess.run(["podman", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True)
        left = [name for name in listed.stdout.split() if name.startswith("hora-")]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def test_ranks_see_the_image_and_the_host(horarun, image):
    done = horarun.run(
        *image, "-np", "2", "-x", "LINES=a\nb", "sh", "-c",
        'cat /etc/image; [ "$LINES" = "a\nb" ] && pwd && id -u && echo $HOROVOD_RANK of $HOROVOD_SIZE',
        env={"LD_LIBRARY_PATH": "/nowhere"},
    ).expect(0)  # fmt: skip
    here = os.path.realpath(horarun.cwd)
    for rank in range(2):
        assert done.ranks()[rank] == ["busybox", here, str(os.geteuid()), f"{rank} of 2"], done


def test_the_exit_code_is_that_of_the_rank(horarun, image):
    horarun.run(*image, "-np", "2", "sh", "-c", "[ $HOROVOD_RANK = 0 ] || exit 7; sleep 60").expect(7)


def test_a_program_that_the_image_lacks(horarun, image):
    done = horarun.run(*image, "-np", "1", "python3", "-V").expect(127)
    assert "E_PROGRAM_NOT_FOUND" in done.err.decode(), done


def test_nothing_is_left_of_a_killed_launcher(horarun, image):
    job = horarun.start(*image, "-np", "2", "sh", "-c", "echo started; sleep 300")
    job.read_until("started")
    job.process.send_signal(signal.SIGKILL)
    job.process.wait()


def test_an_image_that_is_not_there(horarun, image):
    runtime = image[3]
    name = "127.0.0.1:9/none:1" if runtime == "podman" else "/no/such.sif"
    done = horarun.run("--container", name, *image[2:], "-np", "1", "true").expect(125)
    assert "E_CONTAINER" in done.err.decode(), done
    assert name in done.err.decode(), done


def test_hosts_over_ssh(horarun, hosts, shared, rootfs):
    if not shutil.which("apptainer"):
        pytest.skip("no apptainer here")
    up = hosts(2)
    image = shutil.copytree(rootfs, os.path.join(shared, "image"), symlinks=True)
    options = ("--container", image, "--container-runtime", "apptainer", "--runtime", "host", "-H", up.spec(2))
    done = horarun.run(*options, "sh", "-c", "cat /etc/image; exit 5").expect(5)
    assert ["busybox"] in done.ranks().values(), done
    job = horarun.start(*options, "sh", "-c", "echo started; sleep 300")
    job.read_until("started", 4)
    job.process.kill()
    for host in (1, 2):
        jobs.wait_until(lambda k=host: not up.processes(k, "sleep\x00300"), "the ranks to end with the launcher")
    missing = horarun.run("--container", "/no/such.sif", *options[2:], "true").expect(125)
    assert missing.err.decode().count("there is no image '/no/such.sif'") == 2, missing


def test_every_host_says_what_it_lacks(horarun, tmp_path):
    done = horarun.run("--container", "python:3.12", "-np", "1", "true", env={"PATH": str(tmp_path)}).expect(125)
    assert "PATH has no apptainer, no singularity, no podman, no docker" in done.err.decode(), done


# A double: it checks the command line, and runs the entry point here.
DOCKER = """#!/bin/sh
echo "$@" >>"$HOME/docker.log"
[ "$1" = run ] || exit 0
while [ $# -gt 0 ]; do
  case $1 in
    --entrypoint) program=$2; shift 3; break ;;
  esac
  shift
done
exec "$program" "$@"
"""


@pytest.fixture
def docker(tmp_path):
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}


def test_docker_gets_names_and_no_values(horarun, docker, tmp_path):
    done = horarun.run(
        "--container", "python:3.12", "--container-runtime", "docker", "--container-args", "--cpus 2", "-np", "1",
        "sh", "-c", "echo $TOKEN", env={**docker, "TOKEN": "s3cret"},
    ).expect(0)  # fmt: skip
    assert done.ranks() == {0: ["s3cret"]}, done
    line = (tmp_path / "docker.log").read_text()
    assert "s3cret" not in line and "--env TOKEN " in line and " --cpus 2 --entrypoint /" in line, line
    assert f"source={tmp_path},destination={tmp_path}" in line, line


def test_the_doctor_names_what_runs_images(horarun, docker, tmp_path):
    podman = tmp_path / "bin" / "podman"
    podman.write_text("#!/bin/sh\necho podman version 9.9\n")
    podman.chmod(0o755)
    done = horarun.run("doctor", "--json", env=docker)
    assert json.loads(done.out)["hosts"][0]["software"]["containers"]["podman"] == "podman version 9.9", done
