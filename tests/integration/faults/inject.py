# SPDX-License-Identifier: Apache-2.0
"""Injects a fault into node3, and removes it again."""

import os
import shutil
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import jobs
from extra_sshd import ExtraSshd

BAD = 3
PASSWD = "/etc/passwd"


class Injector:
    def __init__(self, hosts, tmp_path, count):
        self.hosts, self.tmp = hosts, tmp_path
        self.good = [k for k in range(1, count + 1) if k != BAD]
        self.state = os.environ.get("HORA_HOSTS_STATE", "/run/hora-hosts")
        self.undo = []
        self.options = []  # for horarun, in front of its arguments
        self.when_running = None
        self.stdout = None

    def put(self, kind, *arguments):
        getattr(self, kind)(*arguments)

    def take_back(self):
        for call in reversed(self.undo):
            call()

    def on(self, k, command, check=True):
        return self.hosts.execute(k, "sh", "-c", command, check=check)

    # --- ssh
    def ssh_config(self, *lines, identity=True, known=True):
        text = ["Host node3", *[f"  {line}" for line in lines], "Host *", "  User root"]
        if identity:
            text += [f"  IdentityFile {self.state}/key", "  IdentitiesOnly yes"]
        if known:
            text += [f"  UserKnownHostsFile {self.state}/known_hosts"]
        path = self.tmp / "ssh_config"
        path.write_text("\n".join(text) + "\n")
        self.options += ["--ssh-config-file", str(path)]

    def new_key(self, name):
        path = self.tmp / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        return path

    def other_key(self):
        self.ssh_config(f"IdentityFile {self.new_key('other')}", "IdentitiesOnly yes", identity=False)
        # The good hosts keep the good key.
        path = self.tmp / "ssh_config"
        good = " ".join(f"node{k}" for k in self.good)
        path.write_text(path.read_text() + f"Host {good}\n  IdentityFile {self.state}/key\n  IdentitiesOnly yes\n")

    def other_host_key(self):
        key = " ".join((self.tmp / (self.new_key("host_key").name + ".pub")).read_text().split()[:2])
        known = self.tmp / "known"
        known.write_text(f"node3,{self.hosts.address(BAD)} {key}\n")
        self.ssh_config(f"UserKnownHostsFile {known}")

    def sshd(self, *lines, port=2231):
        extra = ExtraSshd(self.hosts, BAD)
        self.undo.append(extra.stop)
        extra.start(port, *lines)
        self.ssh_config(f"Port {port}", "StrictHostKeyChecking accept-new", f"UserKnownHostsFile {self.tmp}/known")

    def sshd_strict_modes(self):
        self.on(
            BAD, "mkdir -p /run/loose && cp /run/host/key.pub /run/loose/keys && chmod 777 /run/loose /run/loose/keys"
        )
        self.sshd("StrictModes yes", "AuthorizedKeysFile /run/loose/keys")

    def speaker(self, words, port=2240):
        """A server that says this to every client, and closes."""
        code = (
            f"import socket\nserver = socket.create_server(('', {port}))\nwhile True:\n    peer, _ = server.accept()\n"
            f"    peer.sendall({(words + chr(13) + chr(10)).encode()!r})\n    peer.close()\n"
        )
        self.hosts.execute(
            BAD,
            "sh",
            "-c",
            "cat >/run/speaker.py; setsid python3 /run/speaker.py >/dev/null 2>&1 </dev/null & "
            "echo $! >/run/speaker.pid",
            input=code,
        )
        self.undo.append(lambda: self.on(BAD, "kill $(cat /run/speaker.pid)", check=False))
        jobs.wait_until(
            lambda: self.on(BAD, f"ss -Hltn 'sport = :{port}'", check=False).strip(), f"a listener on port {port}"
        )
        self.ssh_config(f"Port {port}")

    # --- files
    def mount(self, target, *options):
        self.hosts.execute(BAD, "mount", *options, target)
        self.undo.append(lambda: self.hosts.execute(BAD, "umount", "-l", target, check=False))

    def file(self, target, text):
        source = f"/run/fault{len(self.undo)}"
        self.hosts.execute(BAD, "sh", "-c", f"cat >{source}; [ -e {target} ] || : >{target}", input=text)
        self.mount(target, "--bind", source)

    def bashrc(self, text):
        self.file("/root/.bashrc", text + "\n")

    def shell(self, name):
        path = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
        with open(PASSWD) as file:
            lines = [
                ":".join([*line.rstrip("\n").split(":")[:6], path]) if line.startswith("root:") else line.rstrip("\n")
                for line in file
            ]
        self.file(PASSWD, "\n".join(lines) + "\n")

    def tmpfs(self, target, options):
        self.hosts.execute(BAD, "mkdir", "-p", target)  # a cache that no job has made yet
        self.mount(target, "-t", "tmpfs", "-o", options, "tmpfs")

    def gpu(self):
        """A /dev of the host's own, with the node of a GPU in it."""
        if not os.access("/dev/kmsg", os.R_OK | os.W_OK):
            pytest.skip("the kernel's log cannot be read and written here")
        self.on(
            BAD,
            "mkdir -p /run/dev; mount -t tmpfs tmpfs /run/dev; "
            "cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/kmsg /run/dev; "
            "for name in pts shm; do mkdir /run/dev/$name; mount --rbind /dev/$name /run/dev/$name; done; "
            "ln -s pts/ptmx /run/dev/ptmx; ln -s /proc/self/fd /run/dev/fd; : >/run/dev/nvidia0; "
            "mount --move /run/dev /dev",
        )
        self.undo.append(lambda: self.on(BAD, "umount -l /dev", check=False))

    def full(self, *targets):
        for target in targets:
            self.tmpfs(target, "size=64k,mode=1777")
            self.on(BAD, f"mkdir -p {target}/.cache/hora; cat /dev/zero >{target}/filler 2>/dev/null; :")

    def bad(self, command):
        self.on(BAD, command)
        self.undo.append(
            lambda: self.on(BAD, "rm -rf /run/work /run/prog /run/interp /run/script /run/tool /run/glibc-message")
        )

    def others(self, command):
        for k in self.good:
            self.on(k, command)
        clean = "rm -rf /run/work /run/prog /run/interp /run/script /run/tool /run/train.py /run/lib /run/libextra.so"
        self.undo.append(lambda: [self.on(k, clean) for k in [*self.good, BAD]])

    def all(self, command):
        self.others(command)
        self.on(BAD, command)

    # --- the host and the network
    def cut(self):
        self.hosts.act("cut", BAD)
        self.undo.append(lambda: self.hosts.act("heal", BAD))

    def freeze(self):
        self.hosts.act("freeze", BAD)
        self.undo.append(lambda: self.hosts.act("thaw", BAD))

    def crash(self):
        self.hosts.act("crash", BAD)

    def part(self, a, b):
        self.hosts.act("part", a, b)
        self.undo.append(lambda: self.hosts.act("join", a, b))

    def nft(self, rule):
        self.hosts.execute(
            BAD, "nft", f"table inet fault {{ chain in {{ type filter hook input priority 0; {rule}; }}; }}"
        )
        self.undo.append(lambda: self.hosts.execute(BAD, "nft", "delete table inet fault"))

    def no_way_to_the_launcher(self):
        """But for what horarun itself has opened, its connection to sshd."""
        self.hosts.execute(
            BAD,
            "nft",
            "table inet fault { chain out { type filter hook output priority 0; "
            "ip daddr 10.79.0.250 ct state new drop; ip6 daddr fd79:79::250 ct state new drop; }; }",
        )
        self.undo.append(lambda: self.hosts.execute(BAD, "nft", "delete table inet fault"))

    def cut_short(self, library):
        """A library of which the end is missing: a program that loads it dies of SIGBUS."""
        self.on(
            BAD,
            f"head -c 20000 $(readlink -f {library}) >/run/cut-short; "
            f"mount --bind /run/cut-short $(readlink -f {library})",
        )
        self.undo.append(lambda: self.on(BAD, f"umount -l $(readlink -f {library})", check=False))

    def tool(self, name, script):
        path = f"/usr/bin/{name}"
        self.file(path, "#!/bin/sh\n" + script + "\n")
        self.on(BAD, f"chmod 755 {path}")

    def zombies(self, count):
        """A parent that never asks how its children have ended."""
        self.on(
            BAD,
            "setsid python3 -c 'import os, time\n"
            f"for _ in range({count}):\n"
            '    pid = os.spawnlp(os.P_NOWAIT, "true", "true")\n'
            "    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\n"
            'print("ready", flush=True); time.sleep(9875)\' >/run/zombies 2>&1 </dev/null & '
            "until grep -q ready /run/zombies; do :; done",
        )
        self.undo.append(lambda: self.on(BAD, "pkill -f '[s]leep.9875'"))

    def leftover(self):
        self.on(BAD, "HORA_JOB_ID=gone setsid sleep 9876 >/dev/null 2>&1 </dev/null & :")
        self.undo.append(lambda: self.on(BAD, "pkill -f '[s]leep 9876'"))

    def kill_agent(self):
        pids = self.hosts.processes(BAD, "hora/agent-")
        for pid in pids:  # the agent, a child of its shim; who is left to clean up
            with open(f"/proc/{pid}/stat") as file:
                if int(file.read().rpartition(")")[2].split()[1]) in pids:
                    os.kill(pid, 9)

    def when_ready(self, kind):
        self.when_running = lambda: getattr(self, kind)()

    def stdout_full(self):
        self.stdout = open("/dev/full", "w")
        self.undo.append(self.stdout.close)

    # --- the job
    def run(self, horarun, arguments):
        words = []
        for word in arguments:
            words.append(self.hosts.spec(1) if word == "SPEC" else word)
        if words[0] == "doctor":
            words[1:1] = self.options
        else:
            words = self.options + words
        options = {"stdout": self.stdout} if self.stdout else {}
        job = horarun.start(*words, **options)
        if self.when_running:
            job.read_until("ready", len(self.good) + 1)
            self.when_running()
        began = time.monotonic()
        done = job.finish(timeout=90)
        done.seconds = time.monotonic() - began
        return done
