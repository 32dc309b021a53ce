# SPDX-License-Identifier: Apache-2.0
"""HORA_NCCL: hosts with an NVIDIA driver and without NCCL are sent this machine's.

There is no GPU: driver and NCCL are the double of tests/support/gpu_double, which works in host memory. What is
sent, when, and which file ranks load is the same for any libnccl.so.2. One test sends the real one, where the build
found it.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
SENDING = re.compile(r"sending NCCL \(([\d.]+) MB\) to (\d+) hosts?")
LICENCE = "Of this double: do with it what you like.\n"


class Double:
    """A driver that all hosts see, and an NCCL that only the launcher's machine has."""

    def __init__(self, build, shared):
        doubles = os.path.join(build, "tests", "gpu_double")
        if not os.path.exists(os.path.join(doubles, "libnccl.so.2")):
            pytest.skip("built without the double of a GPU")
        if not os.path.exists(os.path.join(build, "lib", "libhora_nccl.so")):
            pytest.skip("built without NCCL")
        self.driver = os.path.join(shared, "driver")
        self.nccl = os.path.join(shared, "nccl")
        self.library = os.path.join(self.nccl, "lib", "libnccl.so.2")
        for folder in (self.driver, self.nccl):
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(self.driver)
        os.makedirs(os.path.dirname(self.library))
        shutil.copy(os.path.join(doubles, "libcuda.so.1"), self.driver)
        shutil.copy(os.path.join(doubles, "libnccl.so.2"), self.library)
        pathlib.Path(self.nccl, "LICENSE.txt").write_text(LICENCE)
        self.program = shutil.copy(PROGRAMS / "nccl_maps.py", shared)

    def environment(self, mode=None, driver=True):
        folders = [self.driver] if driver else []
        return {
            "LD_LIBRARY_PATH": ":".join([*folders, os.path.dirname(self.library)]),
            # Hosts without the device files of a GPU are sent the module only where it is named.
            "HORA_BACKENDS": "nccl,gloo,shm",
            **({"HORA_NCCL": mode} if mode else {}),
        }


@pytest.fixture
def double(build, shared):
    return Double(build, shared)


@pytest.fixture
def two(hosts):
    two = hosts(2, nets=2, decoy=True)
    for number in (1, 2):
        two.execute(number, "sh", "-c", "rm -rf ~/.cache/hora")
    return two


def own_files():
    """Those of this machine's own NCCL, which the loader would find."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return {os.path.realpath(file) for file in re.findall(r"^\tlibnccl\.so\.2 .* => (\S+)$", listed, re.M)}


@contextlib.contextmanager
def without_nccl(two, double, *numbers):
    """Those hosts have none, neither the system's nor the double."""
    mounted = []
    try:
        for number in (1, 2):
            for file in own_files():
                two.execute(number, "mount", "--bind", "/dev/null", file)
                mounted.append((number, file))
        for number in numbers:
            two.execute(number, "mount", "-t", "tmpfs", "none", double.nccl)
            mounted.append((number, double.nccl))
        yield
    finally:
        for number, path in reversed(mounted):
            two.execute(number, "umount", path)


def launch(horarun, two, double, *options, mode=None, driver=True, command=None, **more):
    command = command or ["python3", double.program]
    return horarun.run(
        "-np", 2, "-H", two.spec(1), *options, "--wdir", "/", *command, env=double.environment(mode, driver), **more
    )


def used(done):
    """rank -> the file of the NCCL that its backend works with."""
    found = {}
    for rank, lines in done.ranks().items():
        match = re.fullmatch(r"nccl True (\S+) ?", "\n".join(lines))
        assert match, done
        found[rank] = match[1]
    assert sorted(found) == [0, 1], done
    return found


def is_sent(path):
    return bool(re.search(r"/hora/[0-9a-f]{64}/nccl/lib/libnccl\.so\.2$", path))


def test_first_launch_sends_and_second_does_not(horarun, two, double):
    with without_nccl(two, double, 1, 2):
        first = launch(horarun, two, double).expect(0)
        assert all(is_sent(path) for path in used(first).values()), first
        sending = SENDING.findall(first.messages)
        assert len(sending) == 1 and sending[0][1] == "2", first
        second = launch(horarun, two, double).expect(0)
        assert all(is_sent(path) for path in used(second).values()), second
        assert "sending" not in second.messages, second
    licence = two.execute(1, "sh", "-c", "cat ~/.cache/hora/*/nccl/share/licenses/nccl/LICENSE.txt")
    assert licence == LICENCE


def test_the_real_one_is_sent_whole(horarun, two, double):
    """As far as that shows without a GPU: its ranks load it, and ask it for its version."""
    folder = pathlib.Path("/usr/local/cuda/lib")
    library = folder / "libnccl.so.2"
    if not library.exists():
        pytest.skip(f"no {library}")
    environment = double.environment() | {"LD_LIBRARY_PATH": f"{double.driver}:{folder}"}
    with without_nccl(two, double, 1, 2):
        for number in (1, 2):
            two.execute(number, "mount", "-t", "tmpfs", "none", folder)
        try:
            done = horarun.run(
                "-np", 2, "-H", two.spec(1), "--wdir", "/", "python3", double.program, env=environment
            ).expect(0)
            sent = two.execute(1, "sh", "-c", "sha256sum < $(ls ~/.cache/hora/*/nccl/lib/libnccl.so.2)").split()[0]
        finally:
            for number in (1, 2):
                two.execute(number, "umount", folder)
    assert all(is_sent(path) for path in used(done).values()), done
    assert float(SENDING.search(done.messages)[1]) > 100, done
    assert sent == subprocess.check_output(["sha256sum", library], text=True).split()[0]


def test_collectives_run_by_what_was_sent(horarun, two, double, build, shared):
    built = os.path.join(build, "bin", "collectives_conformance_test")
    if not os.path.exists(built):
        pytest.skip("built without tests")
    program = shutil.copy(built, shared)
    module = shutil.copy(os.path.join(build, "lib", "libhora_nccl.so"), shared)
    with without_nccl(two, double, 1, 2):
        environment = {
            **double.environment(),
            "HORA_TEST_DEVICE": "0",
            "HORA_TEST_BACKEND": "nccl",
            "HORA_MODULE_PATH": os.path.dirname(module),
        }
        done = horarun.run(
            "-np", 2, "-H", two.names[0] + ":2", "--wdir", "/", program, "broadcast: every*", env=environment
        ).expect(0)
    assert SENDING.search(done.messages) and "All tests passed" in done.text, done


def test_a_host_that_has_one_uses_it(horarun, two, double):
    with without_nccl(two, double, 2):
        done = launch(horarun, two, double).expect(0)
    assert used(done)[0] == double.library and is_sent(used(done)[1]), done
    assert SENDING.findall(done.messages)[0][1] == "1", done


def test_a_host_without_a_driver_is_sent_none(horarun, two, double):
    with without_nccl(two, double, 1, 2):
        done = launch(horarun, two, double, driver=False).expect(0)
    assert "sending" not in done.messages and "NCCL" not in done.messages, done
    assert "nccl" not in two.execute(1, "sh", "-c", "ls ~/.cache/hora/*/"), "something of it went there"


def test_the_wheel_of_a_framework_counts_as_its_own(horarun, two, double, shared):
    """PyTorch loads NCCL from a folder that no loader knows."""
    packages = "/usr/local/lib/python3.11/dist-packages"
    if not os.path.isdir(packages):
        pytest.skip("no such folder of packages: " + packages)
    copy = os.path.join(shared, "libnccl.so.2")
    shutil.copy(double.library, copy)
    with without_nccl(two, double, 1, 2):
        two.execute(2, "mount", "-t", "tmpfs", "none", packages)
        try:
            two.execute(2, "sh", "-c", f"mkdir -p {packages}/nvidia/nccl/lib && cp {copy} {packages}/nvidia/nccl/lib")
            done = launch(horarun, two, double).expect(0)
        finally:
            two.execute(2, "umount", packages)
    assert SENDING.findall(done.messages)[0][1] == "1", done


def test_site_sends_none_and_the_job_runs(horarun, two, double):
    with without_nccl(two, double, 1, 2):
        done = launch(horarun, two, double, mode="site").expect(0)
    assert "sending" not in done.messages, done
    for lines in done.ranks().values():
        assert "nccl False" in lines[0] and "libnccl.so.2" in lines[0], done


def test_ship_takes_the_place_of_the_hosts_own(horarun, two, double):
    with without_nccl(two, double):
        done = launch(horarun, two, double, mode="ship").expect(0)
    assert all(is_sent(path) for path in used(done).values()), done


def test_ship_without_any_is_one_error(horarun, two, double):
    os.remove(os.path.join(double.nccl, "LICENSE.txt"))
    done = launch(horarun, two, double, mode="ship").expect(2)
    assert "HORA_NCCL=ship" in done.messages and "licence" in done.messages and "E_LIBRARY" in done.messages, done
    done = launch(horarun, two, double, mode="never").expect(2)
    assert "HORA_NCCL='never': expected auto, site or ship" in done.messages, done


def test_a_job_that_rules_it_out_sends_none(horarun, two, double):
    with without_nccl(two, double, 1, 2):
        for backends in ("gloo,shm", "-nccl"):
            environment = {**double.environment(), "HORA_BACKENDS": backends}
            done = horarun.run("-np", 2, "-H", two.spec(1), "--wdir", "/", "true", env=environment).expect(0)
            assert "sending" not in done.messages, done


def test_elastic_ranks_use_it(horarun, two, double):
    with without_nccl(two, double, 1, 2):
        done = launch(horarun, two, double, "--min-np", 2).expect(0)
    assert all(is_sent(path) for path in used(done).values()), done
    assert SENDING.findall(done.messages)[0][1] == "2", done


def test_a_file_that_has_changed_is_sent_again(horarun, two, double):
    """What is remembered of it does not hide that."""
    with without_nccl(two, double, 1, 2):
        launch(horarun, two, double).expect(0)
        with open(double.library, "ab") as library:
            library.write(b"another build")
        again = launch(horarun, two, double).expect(0)
        assert len(SENDING.findall(again.messages)) == 1, again
        assert all(is_sent(path) for path in used(again).values()), again


def test_the_event_of_sending(horarun, two, double):
    with without_nccl(two, double, 1, 2):
        done = launch(horarun, two, double, "--json").expect(0)
    events = [json.loads(line) for line in done.messages.splitlines() if '"event":"sending"' in line]
    assert len(events) == 1 and events[0]["library"] == "NCCL" and events[0]["hosts"] == 2, done


def test_dry_run_reports_it(horarun, two, double):
    done = launch(horarun, two, double, "--dry-run").expect(0)
    assert not re.search("^NCCL ", done.text, re.M), done
    done = launch(horarun, two, double, "--dry-run", mode="auto").expect(0)
    wanted = f"the host's; where there is none, on hosts with libcuda.so.1, sent: {double.library} (HORA_NCCL=auto)"
    assert re.search(rf"^NCCL +{re.escape(wanted)}$", done.text, re.M), done
