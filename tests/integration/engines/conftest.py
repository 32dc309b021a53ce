# SPDX-License-Identifier: Apache-2.0
"""Fixtures: `cluster` (of the module's ENGINE, or Slurm, on as many test hosts as its HOSTS says), `allocation`
(of Slurm's)."""

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support", "engines"))
import slurm


@pytest.fixture(scope="module")
def clusters():
    """The cluster that is up, by its hosts: after a test that broke hosts there are others."""
    held = {}
    yield held
    for one in held.values():
        close(one)


def close(cluster):
    cluster.close()
    shutil.rmtree(cluster.folder, ignore_errors=True)


@pytest.fixture
def cluster(request, hosts, clusters):
    engine = getattr(request.module, "ENGINE", slurm)
    if why := engine.missing():
        pytest.skip(why)
    # The next one's controller will have the same port.
    for broken in [each for each in clusters if each.faulty]:
        close(clusters.pop(broken))
    present = hosts(request.module.HOSTS)
    if present not in clusters:
        folder = tempfile.mkdtemp(prefix="hora-test.", dir="/var/tmp")
        os.chmod(folder, 0o755)
        more = getattr(request.module, "MORE", None)
        clusters[present] = engine.Cluster(present, folder, *([more] if more else []))
    return clusters[present]


@pytest.fixture
def installed(cluster, build):
    """A folder with what is installed, which the nodes see."""
    folder = os.path.join(cluster.folder, "hora")
    if not os.path.isdir(folder):
        command = ["cmake", "--install", build, "--prefix", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
    return folder


@pytest.fixture
def allocation(request, cluster):
    if slurm.ROOT:  # its sbcast does not see the build
        horarun = request.getfixturevalue("horarun")
        horarun.path = os.path.join(request.getfixturevalue("installed"), "bin", "horarun")
    held = []

    def allocate(*options):
        held.append(cluster.allocate(*options))
        return held[-1]

    yield allocate
    for one in held:
        one.close()
