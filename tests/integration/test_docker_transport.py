# SPDX-License-Identifier: Apache-2.0
"""A transport made from one file and one line (docs/howto/add-transport.md): tests/support/transports/docker."""

import os

import pytest

# A double: what follows the container's name runs here, with a home directory of the container's own.
DOCKER = """#!/bin/sh
[ "$1 $2" = "exec -i" ] || exit 64
[ -d "$CONTAINERS/$3" ] || { echo "Error response from daemon: No such container: $3" >&2; exit 1; }
HOME=$CONTAINERS/$3; export HOME; shift 3
exec "$@"
"""


@pytest.fixture
def horarun_docker(horarun, build, tmp_path):
    """Runs jobs with that transport; answers the environment, in which the double is `docker`."""
    horarun.path = os.path.join(build, "bin", "horarun-docker")
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    for container in ("left", "right"):
        (tmp_path / container).mkdir()
    environment = {"PATH": f"{docker.parent}:/usr/bin:/bin", "CONTAINERS": str(tmp_path)}
    return lambda *arguments, **options: horarun.run("--transport", "docker", *arguments, env=environment, **options)


def test_a_job_runs_over_it(horarun_docker, tmp_path):
    done = horarun_docker("-H", "left:2,right:1", "sh", "-c", "echo $HOROVOD_RANK of $HOROVOD_SIZE").expect(0)
    assert done.ranks() == {rank: [f"{rank} of 3"] for rank in range(3)}, done
    for container in ("left", "right"):
        assert list((tmp_path / container / ".cache" / "hora").iterdir()), "the agent was shipped there"


def test_a_host_that_is_not_there(horarun_docker):
    done = horarun_docker("-H", "left:1,gone:1", "true").expect(125)
    for text in ("E_RSH", "host gone", "No such container: gone", "try the command by hand: docker"):
        assert text in done.err.decode(), done


def test_a_dry_run_names_it(horarun_docker):
    done = horarun_docker("-H", "left:1", "--dry-run", "true").expect(0)
    assert "docker exec -i HOST ..." in done.out.decode(), done


def test_the_options_know_it(horarun_docker):
    assert "--transport auto|ssh|command|docker" in horarun_docker("--help").expect(0).out.decode()
    refused = horarun_docker("-np", "1", "--rsh", "ssh -q", "true")
    assert "--rsh is for --transport command, found --transport docker" in refused.err.decode(), refused
