# SPDX-License-Identifier: Apache-2.0
"""The newest releases of what Hora works with: OpenSSH, Slurm, Open MPI, Python, as Debian sid has them today.

HORA_ROOTS=FOLDER has their root (tests/support/roots/make FOLDER sid-cluster): the system of a host, and of horarun.
"""

import os
import re
import subprocess

import pytest

BUILD = os.environ.get("HORA_BUILD", "")
ROOT = os.path.join(os.environ.get("HORA_ROOTS", "-"), "sid-cluster")
pytestmark = pytest.mark.skipif(
    not os.path.isdir(ROOT), reason="takes HORA_ROOTS with sid-cluster (tests/support/roots/make)"
)
PACKAGES = f"{BUILD}/share/hora/{os.uname().machine}/bundle/python"
PATH = f"{BUILD}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VERSIONS = {
    "glibc": "ldd --version",
    "OpenSSH": "ssh -V 2>&1",
    "Slurm": "slurmd -V",
    "Open MPI": "mpirun --version",
    "Python": "for each in /usr/bin/python3.??; do $each --version; done | tr '\\n' ' '",
    "NumPy": "python3 -c 'import numpy; print(numpy.__version__)'",
    "mpi4py": "python3 -c 'import mpi4py; print(mpi4py.__version__)'",
}
# A root in the folder $1 over the lower one $2, without a trace in that.
MAKE = """
mount -t tmpfs tmpfs "$1" && cd "$1" && mkdir upper work root
mount -t overlay -o lowerdir="$2",upperdir=upper,workdir=work overlay root && cd root
mount -t proc proc proc && mount --rbind /sys sys && mount --rbind /dev dev
mount -t tmpfs tmpfs tmp && mount -t tmpfs tmpfs run && mkdir -p run/sshd etc/ssh
touch etc/hosts && mount --bind /etc/hosts etc/hosts
"""
# The same as the launcher's machine, with the build and what ssh is to know here. $3 is a line for its shell.
ENTER = (
    MAKE
    + f"""
mkdir -p .{BUILD} && mount --bind {BUILD} .{BUILD}
cat /etc/ssh/ssh_config.d/*.conf >etc/ssh/ssh_config 2>/dev/null || :
for each in $(sed -n 's/.*IdentityFile //p; s/.*UserKnownHostsFile //p' etc/ssh/ssh_config); do
  mkdir -p ".${{each%/*}}" && cp "$each" ".$each"
done
exec chroot . env -i HOME=/root PATH={PATH} sh -ec "$3"
"""
)
# On a test host: its sshd is replaced by the root's.
SSHD = (
    MAKE
    + """
mkdir -p run/host && mount --rbind /run/host run/host
kill "$(cat /run/sshd.pid)"
exec chroot . /usr/sbin/sshd -f /run/host/sshd_config -E /run/host/sshd.log
"""
)
SLURM = """
hostname newest
ip link set lo up && ip address add 10.99.0.1/32 dev lo
mount -t tmpfs tmpfs /etc/slurm && mkdir -p /run/slurm/state
printf '127.0.0.1 localhost\\n10.99.0.1 newest\\n' >/run/hosts && mount --bind /run/hosts /etc/hosts
cat >/etc/slurm/slurm.conf <<'.'
ClusterName=test
SlurmctldHost=newest(10.99.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmdSpoolDir=/run/slurm/slurmd
StateSaveLocation=/run/slurm/state
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurm/slurmd.log
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=newest NodeAddr=10.99.0.1 CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
.
slurmctld -D >/dev/null 2>&1 &
slurmd -D >/dev/null 2>&1 &
for try in $(seq 300); do [ "$(sinfo -h -o %T 2>/dev/null)" != idle ] || break; sleep 0.1; done
[ "$(sinfo -h -o %T)" = idle ] || { tail -n 20 /run/slurm/*.log >&2; exit 1; }
"""
TRAIN = """
import platform, numpy, hora.numpy as hvd
hvd.init()
assert (hvd.allreduce(numpy.ones(3, dtype=numpy.float32), op=hvd.Sum) == hvd.size()).all()
print("hora", hvd.rank(), "of", hvd.size(), "by", platform.python_version(), flush=True)
"""
MPI = """
from mpi4py import MPI
world = MPI.COMM_WORLD
assert world.allreduce(world.rank) == sum(range(world.size))
print("mpi", world.rank, "of", world.size, flush=True)
"""
# The function and what it returns are of the main program.
RUN = """
import hora

class Answer:
    def __init__(self, rank):
        self.rank = rank

def work(word):
    hora.init()
    assert word == "word"
    return Answer(hora.rank())

if __name__ == "__main__":
    print("answers", [each.rank for each in hora.run(work, args=("word",), np=2)], flush=True)
"""
ANNOTATED = """
from typing import TYPE_CHECKING
from hora import serialization

if TYPE_CHECKING:
    from elsewhere import Thing

def work(thing: Thing):
    return 1

serialization.dumps(work, "the function")
"""
PYTHONS = sorted(
    re.findall(r"\bpython3\.\d+(?!\S)", " ".join(os.listdir(f"{ROOT}/usr/bin") if os.path.isdir(ROOT) else []))
)


class Outcome:
    def __init__(self, process):
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

    def expect(self, code=0):
        assert self.code == code, str(self)
        return self

    def lines(self, word):
        return sorted(re.findall(rf"\b{word} \d.*", self.out))

    def __repr__(self):
        return f"exit {self.code}\n{self.out}\n{self.err[-6000:]}"


@pytest.fixture
def newest(own_world, tmp_path):
    """Runs a shell's line in the root, as the launcher's machine; "apart": with a network and a name of its own."""

    def run(line, *, apart=False, timeout=120):
        folder = tmp_path / "root"
        folder.mkdir(exist_ok=True)
        more = ["--net", "--uts"] if apart else []
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", *more, "sh", "-euc", ENTER, "sh"]
        return Outcome(
            subprocess.run(
                [*command, folder, ROOT, line],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
            )
        )

    def script(text, name="program.py"):
        return f"cat >/tmp/{name} <<'.'\n{text}\n.\n"

    run.script = script
    return run


@pytest.fixture
def host(horarun, hosts, own_world):
    """A test host whose system and sshd are the root's."""
    one = hosts(1, show=(os.path.dirname(ROOT),))
    one.execute(1, "sh", "-euc", SSHD, "sh", "/mnt", ROOT)
    yield one
    hosts.down()


def test_versions(newest, capsys):
    """And whatever cannot be had is not tested here."""
    table = []
    for name, command in VERSIONS.items():
        table.append(f"  {name:10} {newest(f'{command} | head -n 1').expect().out.strip()}")
    with capsys.disabled():
        print("\n" + "\n".join(table))


def test_host_over_ssh(horarun, host):
    """By libssh and by this machine's ssh, with the newest sshd."""
    for transport in ("auto", "ssh"):
        done = horarun.run("-H", host.spec(2), "--transport", transport, "--wdir", "/", "python3", "-c", TRAIN).expect(
            0
        )
        assert done.text.count("of 2 by 3.") == 2, done


def test_launcher_over_ssh(newest, host):
    """By the newest ssh, and by libssh next to it."""
    for transport in ("auto", "ssh"):
        line = newest.script(TRAIN) + f"horarun -H {host.spec(2)} --transport {transport} --ship /tmp/program.py "
        done = newest(line + "python3 program.py").expect()
        assert [text[:11] for text in done.lines("hora")] == ["hora 0 of 2", "hora 1 of 2"], done


@pytest.mark.parametrize(
    "prepare, words",
    [
        # The agent lists it before the key that fits.
        ("eval $(ssh-agent) >&2; ssh-add -q new; ssh-add -q key; rm key", ""),
        ("cp new .ssh/id_mldsa44_ed25519; cat new.pub >.ssh/authorized_keys; rm key", "id_mldsa44_ed25519 is of type"),
        ("mv known_by_new .ssh/known_hosts", "has a key of type ssh-mldsa44-ed25519"),
        ("sed 's/ [^ ]*$//' new.pub | sed 's/^/[127.0.0.1]:2240 /' >.ssh/known_hosts", "E_HOST_KEY_CHANGED"),
    ],
)
def test_new_types_of_keys(newest, prepare, words):
    """A type that libssh does not know: as the key of a user, and of a host."""
    line = """
ip link set lo up; mkdir -p -m 700 /root/.ssh; cd /root
for key in host key; do ssh-keygen -q -t ed25519 -N '' -f $key; done
for key in new_host new; do ssh-keygen -q -t ssh-mldsa44-ed25519 -N '' -f $key; done
cp key.pub .ssh/authorized_keys
known() { echo "[127.0.0.1]:2240 $(cat $1.pub)"; }
known host >.ssh/known_hosts; known new_host >known_by_new
printf '%s\n' 'Port 2240' 'HostKey /root/host' 'HostKey /root/new_host' 'UsePAM no' >sshd_config
printf '%s\n' 'Host *' 'IdentityFile ~/key' 'IdentityFile ~/.ssh/id_mldsa44_ed25519' >.ssh/config
/usr/sbin/sshd -f sshd_config
"""
    job = "horarun -np 1 -H 127.0.0.1 --transport ssh -p 2240 --accept-new-host-keys echo in"
    done = newest(line + prepare + "\n" + job, apart=True)
    assert (done.out.strip() == "[0]<stdout>:in") == (words != "E_HOST_KEY_CHANGED"), done
    assert words in done.err, done


@pytest.mark.parametrize("python", PYTHONS)
def test_python(newest, python):
    if newest(f"{python} -c 'import numpy'").code:
        pytest.skip(f"{python} has no NumPy there")
    done = newest(newest.script(TRAIN) + f"horarun -np 2 {python} /tmp/program.py").expect()
    release = python.removeprefix("python")
    assert [line.rpartition(".")[0] for line in done.lines("hora")] == [
        f"hora {rank} of 2 by {release}" for rank in (0, 1)
    ], done


@pytest.mark.parametrize("python", PYTHONS)
def test_run(newest, python):
    done = newest(newest.script(RUN) + f"PYTHONPATH={PACKAGES} {python} /tmp/program.py").expect()
    assert "answers [0, 1]" in done.out, done


@pytest.mark.parametrize("python", [each for each in PYTHONS if int(each.rpartition(".")[2]) >= 14])
def test_annotation_that_is_not_there_at_run_time(newest, python):
    done = newest(newest.script(ANNOTATED) + f"PYTHONPATH={PACKAGES} {python} /tmp/program.py")
    assert done.code and "put the annotation in quotes" in done.err, done


@pytest.mark.parametrize("how", ["mpirun -n 2 --allow-run-as-root", "horarun -np 2 --mpi", "horarun -np 2 --pmi pmix"])
def test_mpi(newest, how):
    done = newest(newest.script(MPI) + f"{how} python3 /tmp/program.py").expect()
    assert [line[:10] for line in done.lines("mpi")] == ["mpi 0 of 2", "mpi 1 of 2"], done


def test_slurm(newest):
    """One job by salloc, and one by sbatch, whose script has one task."""
    salloc = "salloc -Q -n2 horarun python3 /tmp/program.py\n"
    sbatch = "sbatch -Q --wait -n2 -o /tmp/batch.out --wrap 'horarun python3 /tmp/program.py'; cat /tmp/batch.out\n"
    done = newest(SLURM + newest.script(TRAIN) + salloc + sbatch, apart=True).expect()
    assert [line[:11] for line in done.lines("hora")] == ["hora 0 of 2"] * 2 + ["hora 1 of 2"] * 2, done
