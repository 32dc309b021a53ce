# SPDX-License-Identifier: Apache-2.0
"""Environment, arguments and working directory arrive as they are."""

import json
import os

import pytest

PYTHON = "/usr/bin/python3"
DUMP = (
    "import json, os, sys; json.dump([sorted([k.hex(), v.hex()] for k, v in os.environb.items()), "
    "[os.fsencode(a).hex() for a in sys.argv[1:]], os.fsencode(os.getcwd()).hex()], sys.stdout)"
)

STRANGE = {
    "QUOTES": """it's "quoted" `here` $(there) ${or} \\here""",
    "LINES": "one\ntwo\r\nthree",
    "EMPTY": "",
    "SPACES": "  x  ",
    "BYTES": os.fsdecode(bytes(range(1, 256))),
    "with.dots.and-dash": "kept",
    "UTF8": "äöü €",
    "A=": None,
}
STRANGE = {name: value for name, value in STRANGE.items() if value is not None}


def dump(done):
    done.expect(0)
    environment, arguments, cwd = json.loads(done.out)
    return (
        {bytes.fromhex(k): bytes.fromhex(v) for k, v in environment},
        [bytes.fromhex(a) for a in arguments],
        bytes.fromhex(cwd),
    )


def check_strange_values(horarun, *options):
    arguments = ["", " ", "it's", '"$(x)"', "a\nb", "*", "~", os.fsdecode(b"\xff\xfe"), "--np", "äé"]
    environment, arrived, _ = dump(
        horarun.run("-np", 1, "--no-prefix-output", *options, PYTHON, "-S", "-c", DUMP, *arguments, env=STRANGE)
    )
    for name, value in STRANGE.items():
        assert environment.get(os.fsencode(name)) == os.fsencode(value), name
    assert arrived == [os.fsencode(a) for a in arguments]


def check_two_megabytes(horarun, *options):
    many = {f"VARIABLE_{i}": "v" * 380 for i in range(5000)}
    environment, _, _ = dump(horarun.run("-np", 1, "--no-prefix-output", *options, PYTHON, "-S", "-c", DUMP, env=many))
    assert all(environment.get(k.encode()) == v.encode() for k, v in many.items())


def test_strange_values(horarun):
    check_strange_values(horarun)


def test_two_megabytes(horarun):
    check_two_megabytes(horarun)


def test_on_a_host(horarun, hosts):
    one = hosts(4)
    check_strange_values(horarun, "-H", one.spec(1))
    check_two_megabytes(horarun, "-H", one.spec(1))


def test_stray_variables_do_not_win(horarun):
    stray = {
        "HOROVOD_RANK": "9",
        "HOROVOD_SIZE": "99",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "203.0.113.9",
        "RANK": "7",
        "WORLD_SIZE": "70",
        "LOCAL_RANK": "3",
        "MASTER_PORT": "1",
    }
    environment, _, _ = dump(horarun.run("-np", 1, "--no-prefix-output", PYTHON, "-S", "-c", DUMP, env=stray))
    for name, value in stray.items():
        assert environment[name.encode()] != value.encode(), name


def test_worker_variables(horarun, hosts):
    names = (
        "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_RANK "
        "HOROVOD_LOCAL_SIZE HOROVOD_CROSS_RANK HOROVOD_CROSS_SIZE HOROVOD_HOSTNAME"
    )
    show = " ".join("$" + name for name in names.split())
    hosts(4)
    done = horarun.run(
        "-np",
        3,
        "-H",
        "node1:2,node2:2",
        "sh",
        "-c",
        f"echo {show}; echo $MASTER_ADDR $MASTER_PORT $HOROVOD_CONTROLLER $HOROVOD_CPU_OPERATIONS",
    ).expect(0)
    ranks = done.ranks()
    assert ranks[0][0] == "0 3 0 2 0 0 3 0 2 0 2 node1"
    assert ranks[1][0] == "1 3 1 2 0 1 3 1 2 0 1 node1"
    assert ranks[2][0] == "2 3 0 1 1 2 3 0 1 1 2 node2"
    masters = {ranks[rank][1] for rank in range(3)}
    assert len(masters) == 1 and masters.pop().startswith("10.79.0.1 "), done


def test_the_operations_that_the_user_asks_for(horarun):
    def operations(*options, **environment):
        done = horarun.run("-np", 1, *options, "sh", "-c", "echo $HOROVOD_CPU_OPERATIONS", env=environment).expect(0)
        return done.ranks()[0]

    assert operations() == ["gloo"]
    assert operations("-x", "HOROVOD_CPU_OPERATIONS=mpi") == ["mpi"]
    assert operations("-x", "HOROVOD_CPU_OPERATIONS=mpi", "--cpu-operations", "gloo") == ["gloo"]
    assert operations(HOROVOD_CPU_OPERATIONS="mpi") == ["gloo"]


def test_nothing_leaks_into_ranks(horarun):
    """A rank has its three streams and no other descriptor, default signals, an empty mask."""
    script = (
        "import os, signal; fds = sorted(int(f) for f in os.listdir('/proc/self/fd')); "
        "status = dict(l.split(':\\t', 1) for l in open('/proc/self/status').read().splitlines()); "
        "print(len(fds), status['SigBlk'], int(status['SigIgn'], 16) & ~(1 << 12 | 1 << 24))"
    )
    # Python itself ignores SIGPIPE and SIGXFSZ; the fourth descriptor is that of the listing.
    assert horarun.run("-np", 1, PYTHON, "-S", "-c", script).expect(0).ranks() == {0: ["4 0000000000000000 0"]}


@pytest.mark.parametrize("name", ["plain", "with space", "qu'o\"te", "new\nline", "$HOME", "ünï"])
def test_working_directory(horarun, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    _, _, cwd = dump(horarun.run("-np", 1, "--no-prefix-output", PYTHON, "-S", "-c", DUMP, cwd=str(folder)))
    assert cwd == os.fsencode(str(folder))
    _, _, cwd = dump(horarun.run("-np", 1, "--no-prefix-output", "--wdir", folder, PYTHON, "-S", "-c", DUMP))
    assert cwd == os.fsencode(str(folder))


def test_working_directory_that_is_named_from_here(horarun, hosts, tmp_path, shared):
    (tmp_path / "inner").mkdir()
    for name in ("inner", "./inner/", "inner/../inner"):
        done = horarun.run("-np", 1, "--wdir", name, "pwd", cwd=str(tmp_path)).expect(0)
        assert done.ranks() == {0: [str(tmp_path / "inner")]}, name
    plan = horarun.run("-np", 1, "--wdir", "inner", "--dry-run", "pwd", cwd=str(tmp_path)).expect(0)
    assert f"working directory  {tmp_path}/inner\n" in plan.text, plan
    # On a host it is the same folder, not one of the agent's.
    os.mkdir(f"{shared}/inner")
    done = horarun.run("-H", hosts(1).spec(1), "--wdir", "inner", "pwd", cwd=shared).expect(0)
    assert done.ranks() == {0: [f"{shared}/inner"]}, done


def test_directory_that_a_host_does_not_have(horarun, hosts, tmp_path):
    hosts(4)
    done = horarun.run("-H", "node1:1", "true", cwd=str(tmp_path)).expect(125)
    assert "E_CWD" in done.messages and str(tmp_path) in done.messages and "node1" in done.messages, done
    assert horarun.run("-H", "node1:1", "--wdir", "/usr", "pwd", cwd=str(tmp_path)).expect(0).ranks() == {0: ["/usr"]}


def test_shipped_files(horarun, hosts, tmp_path):
    hosts(4)
    script, data = tmp_path / "hello.py", tmp_path / "data.bin"
    script.write_text("import os; print(open('data.bin', 'rb').read() == bytes(range(256)) * 1000, os.getcwd())")
    data.write_bytes(bytes(range(256)) * 1000)
    done = horarun.run(
        "-H", "node1:2,node2:2", "--ship", script, "--ship", data, PYTHON, "hello.py", cwd=str(tmp_path)
    ).expect(0)
    lines = [line for rank in range(4) for line in done.ranks()[rank]]
    assert len(lines) == 4 and all(line.startswith("True ") for line in lines), done
    folder = lines[0].split()[1]
    for k in (1, 2):
        assert hosts(4).execute(k, "sh", "-c", f"ls -d {folder} 2>/dev/null || echo gone").strip() == "gone"


def test_shipping_what_is_not_there(horarun):
    done = horarun.run("-np", 1, "--ship", "/no/such/file", "true")
    assert done.code in (2, 125) and "/no/such/file" in done.messages, done
