# SPDX-License-Identifier: Apache-2.0
"""HORA_MPI: hosts without Open MPI are sent this machine's."""

import contextlib
import glob
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
# What a host without Open MPI lacks: its libraries, those that it alone needs, and its folders.
SONAMES = re.compile(r"lib(mpi|open-(rte|pal)|mca_common|oshmem|pmix|hwloc|event)[\w+-]*(-2\.1)?\.so\.\d+")
FOLDERS = re.compile(r"/(openmpi|pmix2?)$")
OPEN_MPI_5 = os.environ.get("HORA_OPEN_MPI_5", str(PROGRAMS.parents[2] / "build/openmpi5"))
SENDING = re.compile(r"sending Open MPI \(([\d.]+) MB\) to (\d+) hosts?")

pytestmark = pytest.mark.skipif(
    shutil.which("mpicc.openmpi") is None, reason="no compiler of Open MPI (libopenmpi-dev)"
)


def libraries():
    """soname -> its file on this machine."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    return {
        soname: os.path.realpath(file)
        for soname, file in re.findall(r"^\t(\S+) .* => (\S+)$", listed, re.M)
        if SONAMES.fullmatch(soname)
    }


@contextlib.contextmanager
def without_mpi(two, *numbers):
    """Those hosts have none of it while this lasts."""
    files = sorted(set(libraries().values()))
    assert any("libmpi.so" in file for file in files) and any("libpmix.so" in file for file in files)
    folders = [
        folder
        for pattern in ("/usr/lib/*/*", "/usr/share/*", "/usr/lib64/*")
        for folder in glob.glob(pattern)
        if FOLDERS.search(folder) and os.path.isdir(folder)
    ]
    mounted = []
    try:
        for number in numbers:
            for file in files:
                two.execute(number, "mount", "--bind", "/dev/null", file)
                mounted.append((number, file))
            for folder in folders:
                two.execute(number, "mount", "-t", "tmpfs", "none", folder)
                mounted.append((number, folder))
        yield
    finally:
        for number, path in reversed(mounted):
            two.execute(number, "umount", path)


@pytest.fixture
def program(build, shared):
    if not os.path.exists(os.path.join(build, f"share/hora/{os.uname().machine}/bundle/bin/hora-pmix")):
        pytest.skip("built without PMIx")
    built = os.path.join(shared, "mpi_maps")
    if not os.path.exists(built):
        subprocess.run(["mpicc.openmpi", "-o", built, str(PROGRAMS / "mpi_maps.c")], check=True, timeout=120)
    return built


@pytest.fixture
def program_of_5(build, shared):
    """The same, by the compiler of Open MPI 5, whose wheel has its own PMIx."""
    compiler = os.path.join(OPEN_MPI_5, "bin", "mpicc")
    if not os.path.exists(compiler):
        pytest.skip("no Open MPI 5 (scripts/setup --interop)")
    built = os.path.join(shared, "mpi_maps_5")
    if not os.path.exists(built):
        subprocess.run([compiler, "-o", built, str(PROGRAMS / "mpi_maps.c")], check=True, timeout=120)
    return built


@pytest.fixture
def two(hosts):
    two = hosts(2, nets=2, decoy=True)
    for number in (1, 2):
        two.execute(number, "sh", "-c", "rm -rf ~/.cache/hora")
    return two


def used(done):
    """rank -> the path of the libmpi that it has loaded; all ranks agree about the sum."""
    found = {}
    for rank, lines in done.ranks().items():
        match = re.fullmatch(r"sum (\d+) with (\S+)", "\n".join(lines))
        assert match and match[1] == "10", done
        found[rank] = match[2]
    assert sorted(found) == [0, 1, 2, 3], done
    return found


def launch(horarun, two, program, *options, mode=None, **more):
    environment = {"HORA_MPI": mode} if mode else {}
    return horarun.run("-np", 4, "-H", two.spec(2), "--pmix", *options, "--wdir", "/", program, env=environment, **more)


def is_sent(path):
    return re.search(r"/hora/[0-9a-f]{64}/openmpi/lib/libmpi\.so\.40", path)


def test_first_launch_sends_and_second_does_not(horarun, two, program):
    with without_mpi(two, 1, 2):
        first = launch(horarun, two, program).expect(0)
        assert all(is_sent(path) for path in used(first).values()), first
        sending = SENDING.findall(first.messages)
        assert len(sending) == 1 and sending[0][1] == "2" and 1 < float(sending[0][0]) < 20, first
        second = launch(horarun, two, program).expect(0)
        assert all(is_sent(path) for path in used(second).values()), second
        assert "sending" not in second.messages, second
        events = launch(horarun, two, program, "--json").expect(0)
        shipped = [json.loads(line) for line in events.messages.splitlines() if '"agent"' in line]
        assert [event["shipped_bytes"] for event in shipped if event["event"] == "agent"] == [0, 0], events
    licences = two.execute(1, "sh", "-c", "ls ~/.cache/hora/*/openmpi/share/licenses").split()
    for package in ("libopenmpi3", "libpmix2", "libhwloc15"):
        assert any(name.startswith(package) for name in licences) or not shutil.which("dpkg-query"), licences


def test_open_mpi_5_is_sent_with_its_own_pmix(horarun, two, program, program_of_5):
    """The run path of the program says which of this machine's it is."""
    with without_mpi(two, 1, 2):
        first = launch(horarun, two, program_of_5).expect(0)
        assert all(is_sent(path) for path in used(first).values()), first
        assert SENDING.findall(first.messages)[0][1] == "2", first
        second = launch(horarun, two, program_of_5).expect(0)
        assert len(used(second)) == 4 and "sending" not in second.messages, second
    files = two.execute(1, "sh", "-c", "cd ~/.cache/hora/*/openmpi && find . -type f").split()
    assert "./lib/libopen-pal.so.80" in files, files
    # Plug-ins of the system's PMIx, which is another one, are not for this one.
    assert not [name for name in files if name.startswith("./lib/pmix/")], files
    pmix = two.execute(1, "sh", "-c", "sha256sum ~/.cache/hora/*/openmpi/lib/libpmix.so.2").split()[0]
    assert pmix == hashlib.sha256(pathlib.Path(OPEN_MPI_5, "lib/openmpi/libpmix.so.2").read_bytes()).hexdigest()


def test_the_event_of_sending(horarun, two, program):
    """Of the published schema, as all others (test_events.py)."""
    jsonschema = pytest.importorskip("jsonschema", reason="python3-jsonschema checks the events")
    schema = json.loads((PROGRAMS.parents[2] / "docs/reference/events.schema.json").read_text())
    with without_mpi(two, 1, 2):
        done = launch(horarun, two, program, "--json").expect(0)
    events = [json.loads(line) for line in done.messages.splitlines() if '"event":"sending"' in line]
    assert len(events) == 1 and events[0]["library"] == "Open MPI" and events[0]["hosts"] == 2, done
    assert not list(jsonschema.Draft202012Validator(schema).iter_errors(events[0])), events


def test_a_host_that_has_one_uses_it(horarun, two, program):
    with without_mpi(two, 2):
        done = launch(horarun, two, program).expect(0)
    sent = {rank: bool(is_sent(path)) for rank, path in used(done).items()}
    assert sent == {0: False, 1: False, 2: True, 3: True}, done
    assert SENDING.findall(done.messages)[0][1] == "1", done
    assert "openmpi" not in two.execute(1, "sh", "-c", "ls ~/.cache/hora/*/"), "nothing of it went there"


def test_one_that_lacks_a_library_counts_as_none(horarun, two, program):
    """libmpi is there, what it needs is not."""
    hwloc = libraries()["libhwloc.so.15"]
    two.execute(2, "mount", "--bind", "/dev/null", hwloc)
    try:
        done = launch(horarun, two, program).expect(0)
    finally:
        two.execute(2, "umount", hwloc)
    assert {rank: bool(is_sent(path)) for rank, path in used(done).items()} == {0: False, 1: False, 2: True, 3: True}


def test_site_is_one_error_before_anything_starts(horarun, two, program, shared):
    marker = os.path.join(shared, "mpi_site_started")
    with without_mpi(two, 2):
        done = horarun.run(
            "-np",
            4,
            "-H",
            two.spec(2),
            "--pmix",
            "--wdir",
            "/",
            "sh",
            "-c",
            f"touch {marker}; exec {program}",
            env={"HORA_MPI": "site"},
        )
        done.expect(125)
    assert not os.path.exists(marker), "a rank has started"
    assert done.messages.count("E_LIBRARY") == 1 and "host node2" in done.messages, done
    assert "libmpi.so.40 was not found" in done.messages and "HORA_MPI=auto" in done.messages, done
    assert done.out == b"", done


def test_site_uses_what_is_there(horarun, two, program):
    done = launch(horarun, two, program, mode="site").expect(0)
    assert not any(is_sent(path) for path in used(done).values()), done


def test_ship_takes_the_place_of_the_hosts_own(horarun, two, program):
    done = launch(horarun, two, program, mode="ship").expect(0)
    assert all(is_sent(path) for path in used(done).values()), done
    assert SENDING.findall(done.messages)[0][1] == "2", done


def test_one_next_to_the_program_is_its_own(horarun, two, program, shared):
    """The compilers of MPI write a run path into programs."""
    own = os.path.join(shared, "own-mpi")
    os.makedirs(own, exist_ok=True)
    for soname, file in libraries().items():
        shutil.copy(file, os.path.join(own, soname))
    built = os.path.join(shared, "mpi_run_path")
    subprocess.run(
        ["mpicc.openmpi", "-o", built, str(PROGRAMS / "mpi_maps.c"), "-Wl,--enable-new-dtags,-rpath," + own],
        check=True,
        timeout=120,
    )
    # The plug-ins stay where they are, and so does what they need.
    libmpi = libraries()["libmpi.so.40"]
    two.execute(2, "mount", "--bind", "/dev/null", libmpi)
    try:
        done = launch(horarun, two, built).expect(0)
    finally:
        two.execute(2, "umount", libmpi)
    assert set(used(done).values()) == {own + "/libmpi.so.40"}, done
    assert "sending" not in done.messages, done


def test_mpi_moves_tensors_where_it_was_sent(horarun, two, program):
    with without_mpi(two, 1, 2):
        done = horarun.run(
            "-np", 2, "-H", two.spec(1), "--pmix", "--cpu-operations", "mpi", "--wdir", "/", "hora-smoke"
        ).expect(0)
        assert "2 ranks on 2 hosts, backends: mpi" in done.text and "all ok" in done.text, done
        assert SENDING.findall(done.messages)[0][1] == "2", done
        refused = horarun.run(
            "-np",
            2,
            "-H",
            two.spec(1),
            "--pmix",
            "--cpu-operations",
            "mpi",
            "--wdir",
            "/",
            "hora-smoke",
            env={"HORA_MPI": "site"},
        ).expect(125)
        assert refused.messages.count("E_LIBRARY") == 2, refused  # one for each host


def test_users_own_folders_do_not_mislead_it(horarun, two, program):
    """OPAL_PREFIX of this machine's Open MPI leads nowhere on a host that is sent one."""
    with without_mpi(two, 1, 2):
        done = horarun.run(
            "-np",
            4,
            "-H",
            two.spec(2),
            "--pmix",
            "--wdir",
            "/",
            program,
            env={"OPAL_PREFIX": "/nowhere", "OPAL_PKGLIBDIR": "/nowhere"},
        ).expect(0)
    assert all(is_sent(path) for path in used(done).values()), done


def test_no_such_mode(horarun, two, program):
    for options in ((), ("--dry-run",)):
        done = launch(horarun, two, program, *options, mode="sometimes").expect(2)
        assert "HORA_MPI='sometimes': expected auto, site or ship" in done.messages, done


def test_dry_run_reports_it(horarun, two, program):
    for mode, expected_text in (
        (None, r"the host's; where there is none, sent: /\S*libmpi\.so\.40 \(HORA_MPI=auto\)"),
        ("site", r"the host's \(HORA_MPI=site\)"),
        ("ship", r"sent to other machines: /\S*libmpi\.so\.40 \(HORA_MPI=ship\)"),
    ):
        done = launch(horarun, two, program, "--dry-run", mode=mode).expect(0)
        assert re.search(rf"^Open MPI +{expected_text}$", done.text, re.M), done
