# SPDX-License-Identifier: Apache-2.0
"""Hosts with other systems: real root file systems, one to a host (tests/support/roots/make).

HORA_ROOTS=FOLDER names them. Each host runs what reaches it inside its root, over --rsh. One root is of another
processor, ARM64, whose programs qemu runs; its hosts get the build that `scripts/build release --arch aarch64` makes.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support", "roots"))
import emulation

BUILD = os.environ.get("HORA_BUILD", "")
ROOTS = os.environ.get("HORA_ROOTS", "")
PRESENT = sorted(os.listdir(ROOTS)) if ROOTS else []
SYSTEMS = [name for name in PRESENT if name in ("glibc-2.28", "bullseye", "bookworm", "trixie", "sid")]
QEMU = emulation.qemu(ROOTS)
ARM64_DEB = next(iter(sorted(glob.glob(os.path.join(os.environ.get("HORA_PACKAGES", "-"), "*_arm64.deb")))), "")


def why_no_arm64():
    """Why there can be no ARM64 hosts here; empty if there can."""
    if reason := emulation.reason_against(ROOTS):
        return reason
    if not os.path.exists(os.path.join(BUILD, "share/hora/aarch64/manifest.json")):
        return f"{BUILD} has no build for ARM64 (scripts/build release --arch aarch64)"
    return ""


WHY_NO_ARM64 = why_no_arm64()
needs_arm64 = pytest.mark.skipif(bool(WHY_NO_ARM64), reason=WHY_NO_ARM64)
pytestmark = pytest.mark.skipif(not PRESENT, reason="HORA_ROOTS names no folder with roots (tests/support/roots/make)")

# $1: host, $2: a line for its shell. The root's mounts are the host's own and end with it.
ENTER = """#!/bin/sh
pid=$(cat "{folder}/$1.pid")
exec nsenter -t "$pid" -m -u -i -n -p --wd=/ -- $(cat "{folder}/$1.wrap") \\
  chroot /mnt env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "$2"
"""
MOUNT = """
mkdir -p /run/root/upper /run/root/work
mount -t overlay -o lowerdir={root},upperdir=/run/root/upper,workdir=/run/root/work overlay /mnt
mkdir -p /mnt/dev/shm; touch /mnt/etc/hosts
mount --rbind /proc /mnt/proc && mount --rbind /sys /mnt/sys && mount --rbind /dev /mnt/dev
mount -t tmpfs tmpfs /mnt/tmp && mount -t tmpfs tmpfs /mnt/run && mount --bind /etc/hosts /mnt/etc/hosts
"""
# The same for horarun, on the machine of the test, from where `enter` reaches the hosts.
LAUNCH = """
mount -t tmpfs tmpfs {folder}/launcher && cd {folder}/launcher && mkdir upper work root
mount -t overlay -o lowerdir={root},upperdir=upper,workdir=work overlay root && cd root
mount --rbind /proc proc && mount --rbind /sys sys && mount --rbind /dev dev && mount -t tmpfs tmpfs tmp
touch etc/hosts && mount --bind /etc/hosts etc/hosts
mkdir -p .{folder} .{build} && mount --bind {folder} .{folder} && mount --bind {build} .{build}
exec chroot . env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin {build}/bin/horarun "$@"
"""
# The same for the horarun of a package for ARM64, which uses ssh, as this machine does: what a user namespace holds
# may not enter hosts. $DEB is the package, $FOLDER an empty folder, $BUILD the build for the hosts.
LAUNCH_ARM64 = """
mount -t tmpfs tmpfs "$FOLDER" && cd "$FOLDER" && mkdir upper work root
mount -t overlay -o lowerdir="$ROOT",upperdir=upper,workdir=work overlay root && cd root
mount --rbind /proc proc && mount --rbind /sys sys && mount --rbind /dev dev
mount -t tmpfs tmpfs tmp && mount -t tmpfs tmpfs run && mkdir -p etc/ssh
touch etc/hosts && mount --bind /etc/hosts etc/hosts
cat /etc/ssh/ssh_config.d/*.conf >etc/ssh/ssh_config
for each in $(sed -n 's/.*IdentityFile //p; s/.*UserKnownHostsFile //p' etc/ssh/ssh_config); do
  mkdir -p ".${each%/*}" && cp "$each" ".$each"
done
dpkg-deb -x "$DEB" . && cp -a "$BUILD/share/hora/x86_64" usr/share/hora/
exec sh "$EMULATED" "$QEMU" chroot . env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin horarun --wdir / "$@"
"""
TRAIN = """
import numpy, hora.numpy as hvd
hvd.init()
assert (hvd.allreduce(numpy.ones(3, dtype=numpy.float32), op=hvd.Sum) == hvd.size()).all()
print("hora", hvd.rank(), "of", hvd.size(), flush=True)
"""
TRAIN_TORCH = """
import os, torch, horovod.torch as hvd
hvd.init()
x = torch.ones(3, requires_grad=True)
hvd.allreduce(x, op=hvd.Sum).sum().backward()
assert (x.grad == hvd.size()).all()
print("torch", hvd.rank(), "of", hvd.size(), flush=True)
hvd.shutdown()
if torch.__version__ < "1.9":  # Debian 11's aborts at exit after any backward() of a Python function, by itself
    os._exit(0)
"""
# Digests of what every rank computes: sums of all kinds of numbers, in which the order of the terms shows.
SAME_BITS = """
import hashlib, numpy, hora.numpy as hvd
hvd.init()
digest = hashlib.sha256()
for dtype in ("uint8", "int32", "int64", "float16", "float32", "float64"):
    random = numpy.random.RandomState(17 + hvd.rank())
    values = (random.standard_normal(10007) * 8).astype(dtype)
    for op in (hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
        digest.update(hvd.allreduce(values, op=op, name=f"{dtype} {op}").tobytes())
    digest.update(hvd.allgather(values[: 5 + hvd.rank()], name=f"gather {dtype}").tobytes())
    digest.update(hvd.broadcast(values, 0, name=f"broadcast {dtype}").tobytes())
print(digest.hexdigest(), flush=True)
"""
EMULATED_S = 400  # an emulated program takes many times as long


class Systems:
    """Hosts that have the systems of these names, by --rsh."""

    def __init__(self, horarun, hosts, folder, names):
        self.horarun, self.folder, self.names = horarun, folder, names
        hosts.down()  # mounts of the test before
        set_of_hosts = hosts(len(names), show=(ROOTS, BUILD))
        self.set_of_hosts = set_of_hosts
        self.hosts = dict(zip(names, set_of_hosts.names))
        for k, name in enumerate(names, 1):
            set_of_hosts.execute(k, "sh", "-ec", MOUNT.format(root=os.path.join(ROOTS, name)))
            (folder / f"{self.hosts[name]}.pid").write_text(str(set_of_hosts._hosts.init_pid(k)))
            (folder / f"{self.hosts[name]}.wrap").write_text(self.wrap(k) if name == "arm64" else "")
        self.enter = folder / "enter"
        self.enter.write_text(ENTER.format(folder=folder))
        self.enter.chmod(0o755)

    def wrap(self, k):
        """What runs programs for ARM64 on host k."""
        with open(emulation.EMULATED) as script:
            self.set_of_hosts.execute(k, "sh", "-c", "cat >/run/emulated", input=script.read())
        return f"sh /run/emulated {QEMU}"

    def run(self, slots, *arguments, **options):
        spec = ",".join(f"{self.hosts[name]}:{slots}" for name in self.names)
        # An emulated Python may import PyTorch for a minute, while the other ranks wait for it.
        timeout = ["--gloo-timeout-seconds", EMULATED_S] if "arm64" in self.names else []
        command = ["--rsh", str(self.enter), "--wdir", "/", "-H", spec, *timeout, *arguments]
        return self.horarun.run(*command, **options)

    def launch_from(self, system, build, *arguments, timeout=120):
        """Runs horarun in the root of this system; its hosts are as they are."""
        (self.folder / "launcher").mkdir(exist_ok=True)
        script = LAUNCH.format(folder=self.folder, root=os.path.join(ROOTS, system), build=build)
        return subprocess.run(
            ["unshare", "--mount", "sh", "-euc", script, "horarun", "--rsh", self.enter, "--wdir", "/", *arguments],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip


@pytest.fixture
def systems(horarun, hosts, own_world, tmp_path):
    return lambda *names: Systems(horarun, hosts, tmp_path, names)


@pytest.mark.parametrize("name", SYSTEMS)
def test_alone(systems, name):
    here = systems(name)
    assert here.run(2, "cat", "/etc/debian_version").expect(0).ranks().keys() == {0, 1}
    assert "all ok" in here.run(2, "--smoke").expect(0).text
    assert sorted(re.findall(r"hora \d of 2", here.run(2, "python3", "-c", TRAIN).expect(0).text)) == [
        "hora 0 of 2",
        "hora 1 of 2",
    ]
    done = here.run(2, "python3", "-c", TRAIN_TORCH).expect(0)
    assert sorted(re.findall(r"torch \d of 2", done.text)) == ["torch 0 of 2", "torch 1 of 2"], done
    # Nothing there belongs to a system that is too old.
    host = here.hosts[name]
    report = here.horarun.run("doctor", "--rsh", str(here.enter), "-H", f"{host}:2", "--json")
    codes = [finding["code"] for finding in json.loads(report.text)["findings"]]
    for code in ("D_GLIBC", "D_LIBRARY", "D_SHARED_MEMORY", "D_LOOPBACK"):
        assert code not in codes, report


@pytest.mark.skipif(len(SYSTEMS) < 2, reason="takes two roots")
@pytest.mark.parametrize("arm64", [False, pytest.param(True, marks=needs_arm64)])
def test_one_world_of_all(systems, arm64):
    names = [*SYSTEMS, *(["arm64"] if arm64 else [])]
    world = systems(*names)
    timeout = EMULATED_S if arm64 else 120
    assert "all ok" in world.run(1 if arm64 else 2, "--smoke", timeout=timeout).expect(0).text
    done = world.run(1, "python3", "-c", TRAIN_TORCH, timeout=timeout).expect(0)
    assert len(re.findall(rf"torch \d of {len(names)}", done.text)) == len(names), done
    done = world.run(1, "python3", "-c", SAME_BITS, timeout=timeout).expect(0)
    results = [line for lines in done.ranks().values() for line in lines]
    assert len(results) == len(names) and len(set(results)) == 1, done


@pytest.mark.parametrize("launcher", SYSTEMS)
def test_from_each_to_each(systems, build, launcher):
    """horarun in one root, its host in another, or in the same; and in that of ARM64."""
    names = [*SYSTEMS, *([] if WHY_NO_ARM64 else ["arm64"])]
    world = systems(*names)
    for name in names:
        timeout = EMULATED_S if name == "arm64" else 120
        done = world.launch_from(launcher, build, "-H", f"{world.hosts[name]}:2", "--smoke", timeout=timeout)
        assert done.returncode == 0 and "all ok" in done.stdout, (launcher, name, done)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_launcher_itself(systems, build, name):
    """horarun on the old system; what it needs is next to it."""
    here = systems(name)
    here.set_of_hosts.execute(
        1, "sh", "-ec", f"for i in bin share; do mkdir -p /mnt/opt/$i; mount --bind {build}/$i /mnt/opt/$i; done"
    )
    done = subprocess.run(
        [here.enter, here.hosts[name], "/opt/bin/horarun -np 2 --smoke"], capture_output=True, text=True, timeout=120
    )
    assert "all ok" in done.stdout, done


@needs_arm64
def test_arm64_alone(systems):
    here = systems("arm64")
    first = here.run(2, "--verbose", "uname", "-m").expect(0)
    assert first.ranks() == {0: ["aarch64"], 1: ["aarch64"]}
    assert re.search(r"agent ready, shipped [1-9]\d+ bytes", first.messages), first
    again = here.run(2, "--verbose", "uname", "-m").expect(0)
    assert "agent ready, shipped 0 bytes" in again.messages, again
    assert "all ok" in here.run(2, "--smoke", timeout=EMULATED_S).expect(0).text
    done = here.run(2, "python3", "-c", TRAIN_TORCH, timeout=EMULATED_S).expect(0)
    assert sorted(re.findall(r"torch \d of 2", done.text)) == ["torch 0 of 2", "torch 1 of 2"], done


@needs_arm64
def test_arm64_needs_the_agent_only_for_the_runtime_of_the_host(systems):
    here = systems("arm64")
    here.run(1, "--runtime", "host", "uname", "-m").expect(0)
    cached = here.run(1, "--runtime", "host", "sh", "-c", "ls $HOME/.cache/hora").expect(0)
    assert [name[:6] for name in cached.ranks()[0]] == ["agent-"], cached


@needs_arm64
@pytest.mark.parametrize("other", ["bookworm", "bullseye"])
def test_one_world_of_two_processors(systems, other):
    if other not in SYSTEMS:
        pytest.skip(f"takes the root {other}")
    world = systems(other, "arm64")
    assert world.run(1, "uname", "-m").expect(0).ranks() == {0: ["x86_64"], 1: ["aarch64"]}
    done = world.run(2, "--smoke", timeout=EMULATED_S).expect(0)
    assert "all ok" in done.text and "gloo" in done.text, done
    done = world.run(1, "python3", "-c", SAME_BITS, timeout=EMULATED_S).expect(0)
    results = [line for lines in done.ranks().values() for line in lines]
    assert len(results) == 2 and len(set(results)) == 1, done
    done = world.run(1, "python3", "-c", TRAIN_TORCH, timeout=EMULATED_S).expect(0)
    assert len(re.findall(r"torch \d of 2", done.text)) == 2, done


@pytest.mark.skipif(bool(emulation.reason_against(ROOTS)), reason=emulation.reason_against(ROOTS) or "-")
@pytest.mark.skipif(not ARM64_DEB, reason="HORA_PACKAGES has no *_arm64.deb (scripts/package --arch aarch64 deb)")
def test_arm64_as_the_launcher(hosts, own_world, build, tmp_path):
    """Of hosts with another processor, by ssh, and in one world with them."""
    hosts.down()
    node1, node2 = hosts(2).names
    paths = {"DEB": ARM64_DEB, "BUILD": build, "FOLDER": str(tmp_path), "ROOT": os.path.join(ROOTS, "arm64"),
             "EMULATED": emulation.EMULATED, "QEMU": QEMU}  # fmt: skip

    def launch(*arguments):
        command = ["unshare", "--mount", "sh", "-euc", LAUNCH_ARM64, "horarun", *arguments]
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=EMULATED_S,
            env={**os.environ, **paths},
        )  # fmt: skip

    done = launch("-H", f"{node1}:1,{node2}:1", "uname", "-nm")
    assert done.returncode == 0, done
    assert {line.split()[-1] for line in done.stdout.splitlines()} == {"x86_64"}, done
    for spec in (f"{node1}:2,{node2}:2", f"localhost:1,{node1}:1"):
        done = launch("-H", spec, "--gloo-timeout-seconds", str(EMULATED_S), "--smoke")
        assert done.returncode == 0 and "all ok" in done.stdout, (spec, done)


@needs_arm64
def test_a_processor_without_a_build(systems, build, tmp_path):
    """An installation that has one build."""
    here = systems("arm64")
    for name in ("bin", "share/hora"):
        (tmp_path / "one" / name).mkdir(parents=True)
    shutil.copy(os.path.join(build, "bin/horarun"), tmp_path / "one/bin")
    os.symlink(os.path.join(build, "share/hora/x86_64"), tmp_path / "one/share/hora/x86_64")
    horarun = [tmp_path / "one/bin/horarun", "--rsh", here.enter, "-H", here.hosts["arm64"]]
    for options in (["uname"], ["--runtime", "host", "uname"]):
        done = subprocess.run([*horarun, *options], capture_output=True, text=True, timeout=60)
        assert done.returncode == 125 and "E_PROCESSOR" in done.stderr, done
        assert "its processor is aarch64, and this installation has builds for x86_64 only" in done.stderr, done
        assert "scripts/build release --arch aarch64" in done.stderr, done


@needs_arm64
def test_the_doctor_on_arm64(systems):
    here = systems("arm64")
    report = here.horarun.run("doctor", "--rsh", str(here.enter), "-H", f"{here.hosts['arm64']}:2", "--json")
    codes = [finding["code"] for finding in json.loads(report.text)["findings"]]
    for code in ("D_GLIBC", "D_LIBRARY", "D_SHARED_MEMORY", "D_LOOPBACK"):
        assert code not in codes, report


@pytest.mark.skipif("musl" not in PRESENT, reason="takes the root musl")
def test_a_host_without_glibc(systems):
    here = systems("musl")
    done = here.run(2, "--smoke").expect(125)
    assert "E_C_LIBRARY" in done.messages and "musl and no glibc" in done.messages, done
    assert "--runtime host" in done.messages, done
    assert done.messages.count("E_C_LIBRARY") == 1, done
    done = here.run(2, "--json", "--smoke").expect(125)
    events = [json.loads(line) for line in done.messages.splitlines()]
    assert events[-1]["event"] == "job_end" and events[-1]["code"] == "E_C_LIBRARY", done
    assert not [event for event in events if event["event"].startswith("rank_")], done
    done = here.run(2, "--runtime", "host", "busybox", "echo", "here").expect(0)
    assert done.ranks() == {0: ["here"], 1: ["here"]}, done
    report = here.horarun.run("doctor", "--rsh", str(here.enter), "-H", here.hosts["musl"], "--json")
    codes = [finding["code"] for finding in json.loads(report.text)["findings"]]
    assert "D_GLIBC" in codes, report
    assert not {"D_LIBRARY", "D_MPI", "D_NCCL", "D_WORLD"} & set(codes), report
