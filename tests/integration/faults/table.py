# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as data: one row per fault. test_faults.py puts each into one of eight hosts (node3) and
expects horarun to name it; docs/troubleshooting.md is made from the same rows (scripts/troubleshooting).

    group, id    where it stands on the page
    symptom      what a user sees or says; the heading
    inject       what inject.py does to node3, with its arguments
    run          horarun's arguments; HOSTS and SPEC stand for all hosts, PATHs of inject.py are {name}
    exit         the exit code
    says         what must be in the output: the class or code, the host, the reason
    cause, fix   for the page; `fix` words that the output must hold stand in `advises`
"""

import collections

Fault = collections.namedtuple("Fault", "group id symptom inject run exit says advises cause fix")
ROWS = []
JOB = ["-H", "SPEC", "true"]


def row(group, id, symptom, inject, run, exit, says, advises, cause, fix):
    ROWS.append(Fault(group, id, symptom, inject, run, exit, says, advises, cause, fix))


# fmt: off
# --- reaching a host -------------------------------------------------------------------------------------------
G = "A host cannot be reached"
row(G, "unknown-name", "A host name is not known", [], ["-H", "node1:1,node2:1,no-such-host.invalid:1", "true"], 125,
    ["E_RESOLVE", "no-such-host.invalid"], ["getent hosts no-such-host.invalid"],
    "Neither `/etc/hosts`, nor DNS, nor `~/.ssh/config` knows the name.", "Check the spelling; `getent hosts NAME`.")
row(G, "refused", "Connection refused", [["ssh_config", "Port 9"]], JOB, 125,
    ["E_CONNECT_REFUSED", "node3", "Connection refused"], ["ssh"],
    "The host is up and nothing listens on the SSH port.", "Start sshd there, or name its port by `-p`.")
row(G, "black-hole", "No answer at all: the host is down or a firewall drops packets",
    [["ssh_config", "ConnectTimeout 2"], ["cut"]], JOB, 125, ["E_CONNECT_TIMEOUT", "node3", "no answer"],
    ["firewall", "ConnectTimeout=5 node3"], "The host is down, or a firewall drops packets to its SSH port.",
    "Check that it is up and the way to it; `ssh -o ConnectTimeout=5 NAME true`.")
row(G, "no-route", "No route to host", [["ssh_config", "HostName 10.79.0.99"]], [*JOB[:2], "--start-timeout", "10s", "true"],
    125, ["E_CONNECT", "node3"], ["ssh"], "Nobody has that address: the host is off, or its address has changed.",
    "Check the address: `getent hosts NAME`.")
row(G, "hanging-sshd", "The connection comes about and then nothing happens", [["freeze"]],
    ["-H", "SPEC", "--start-timeout", "5s", "true"], 125, ["E_CONNECT_TIMEOUT", "node3", "ssh banner", "sends no banner"], ["hangs"],
    "The host or its sshd hangs, or has more logins than it can take: the kernel accepts the connection, and nobody speaks.",
    "Look at the host's console and load, and at `MaxStartups`; lower `--fan-out`; restart it.")
row(G, "not-ssh", "Something else listens on the SSH port", [["ssh_config", "ProxyCommand printf 'HTTP/1.1 400 Bad\\r\\n'"]],
    JOB, 125, ["E_SSH_PROTOCOL", "node3", "HTTP/1.1"], ["port"], "The port belongs to another service.", "Check `-p`.")
row(G, "busy", "sshd drops connections (MaxStartups)",
    [["speaker", "Not allowed at this time"]],
    ["-H", "SPEC", "--start-timeout", "3s", "true"], 125, ["E_SSH_BUSY", "node3"], ["MaxStartups", "--fan-out"],
    "Too many connections that are not logged in yet; horarun tried again and again until the start timeout.",
    "Raise `MaxStartups` in its `sshd_config`, or lower `--fan-out`.")
row(G, "proxy", "The way through a jump host fails", [["ssh_config", "ProxyCommand sh -c 'echo no way >&2; exit 1'"]],
    JOB, 125, ["E_CONNECT", "node3", "no way"], ["ssh"], "The `ProxyCommand` or `ProxyJump` of `~/.ssh/config` ended.",
    "Run it by hand; its last words are in the message.")

G = "A host refuses the login"
row(G, "unknown-key", "The host's key is not known", [["ssh_config", "UserKnownHostsFile /dev/null", "GlobalKnownHostsFile /dev/null"]],
    JOB, 125, ["E_HOST_KEY_UNKNOWN", "node3"], ["--accept-new-host-keys", "ssh-keyscan"],
    "The host is in no `known_hosts` file, so nothing says that it is the one you mean.",
    "Connect once by `ssh NAME` and compare the fingerprint, or `--accept-new-host-keys`.")
row(G, "changed-key", "The host's key has changed", [["other_host_key"]], JOB, 125, ["E_HOST_KEY_CHANGED", "node3"],
    ["ssh-keygen -R"], "The host was installed anew, its address belongs to another one now, or somebody is in between.",
    "If you know why: `ssh-keygen -R NAME`, then connect once by `ssh`.")
row(G, "wrong-key", "No key is accepted", [["other_key"]], JOB, 125, ["E_SSH_AUTH", "node3"], ["-i", "authorized_keys"],
    "None of the keys offered (agent, `~/.ssh/config`, `-i`, default keys) is accepted for this user.",
    "`ssh-copy-id NAME`, `-i FILE`, or `-H user@host`.")
row(G, "unknown-user", "The user does not exist there", [["ssh_config", "User nobody-of-this-name"]], JOB, 125,
    ["E_SSH_AUTH", "node3", "nobody-of-this-name"], ["authorized_keys"], "sshd does not tell an unknown user from a wrong key.",
    "Name the user: `-H user@host`.")
row(G, "loose-modes", "The key is right, and sshd refuses it for its file's modes", [["sshd_strict_modes"]], JOB, 125,
    ["E_SSH_AUTH", "node3"], ["written by others"],
    "sshd ignores `authorized_keys` when the file, `~/.ssh` or the home folder can be written by others (`StrictModes`).",
    "On that host: `chmod go-w ~ ~/.ssh ~/.ssh/authorized_keys`.")

G = "The login shell gets in the way"
row(G, "no-shell", "The account has no login shell", [["shell", "nologin"]], JOB, 125, ["E_NO_SHELL", "node3"],
    ["-H user@host"], "The account's shell is `nologin` or `false`.", "Use another account, or give it a shell: `chsh`.")
row(G, "shell-exits", "A login script ends the session", [["bashrc", "echo maintenance until noon; exit 255"]], JOB, 125,
    ["E_REMOTE_SHELL", "node3", "maintenance until noon"], ["ssh"], "`~/.bashrc` or a profile there calls `exit`.",
    "What it printed is in the message; `ssh NAME 'echo ok'`.")
row(G, "shell-waits", "A login script waits for ever", [["bashrc", "sleep 1000"]],
    ["-H", "SPEC", "--start-timeout", "5s", "true"], 125, ["E_SHELL_TIMEOUT", "node3"], ["login script"],
    "It asks a question, or waits for a file system that does not answer.", "Put what is for people behind a test for a terminal.")
row(G, "forced-command", "The key may only run one command", [["sshd", "ForceCommand echo only this"]], JOB, 125,
    ["E_REMOTE_SHELL", "node3", "only this"], ["ssh"], "`ForceCommand` or `command=` in `authorized_keys`.", "Use another key.")
row(G, "noise", "The login prints a banner", [["bashrc", "echo Welcome; printf 'no line feed'; echo oops >&2"]], JOB, 0,
    [], [], "Nothing: output of a login script is not taken for the agent's.", "None is needed.")

G = "There is no room on a host"
row(G, "disk-full", "The disk is full", [["full", "/root", "/tmp", "/dev/shm"]], JOB, 125, ["E_DISK_FULL", "node3", "is full"],
    ["free some space", "df -h"], "The runtime fits into none of the cache, `$TMPDIR`, `/tmp` and `/dev/shm`.",
    "Free some space; `horarun cache clean -H NAME`.")
row(G, "noexec", "No folder lets programs run", [["tmpfs", "/root", "noexec"], ["tmpfs", "/tmp", "noexec"], ["tmpfs", "/dev/shm", "noexec"]],
    JOB, 125, ["E_CACHE", "node3", "noexec"], ["XDG_CACHE_HOME"], "Home, `/tmp` and `/dev/shm` are mounted `noexec` or read-only.",
    "Point `XDG_CACHE_HOME` of that account to a folder that does.")
row(G, "read-only-home", "The home folder is read-only", [["tmpfs", "/root", "ro"]], JOB, 0, [], [],
    "Nothing: the runtime goes to `/tmp` instead.", "None is needed.")
row(G, "rank-disk-full", "A rank cannot write", [["tmpfs", "/mnt", "size=64k"]],
    ["-H", "SPEC", "python3", "-c", "open('/mnt/x','wb').write(b'x' * (1 << 20)) if __import__('os').environ['HOROVOD_RANK'] == '2' else None"],
    1, ["rank 2 on node3", "No space left on device"], ["df -h"], "A disk, a quota or `/dev/shm` of the host is full.", "`df -h` there.")

G = "A program does not start on one host"
row(G, "no-directory", "The working directory is missing", [["others", "mkdir -p /run/work"]],
    ["--wdir", "/run/work", *JOB], 125, ["E_CWD", "node3", "/run/work"], ["--wdir", "--ship"],
    "Ranks start where horarun was started, or in `--wdir`; that folder is not there.", "A shared folder, `--wdir DIR`, or `--ship FILE`.")
row(G, "no-program", "The program is missing", [["others", "ln -sf /bin/true /run/prog"]], ["--wdir", "/", "-H", "SPEC", "/run/prog"],
    127, ["E_PROGRAM_NOT_FOUND", "node3", "/run/prog"], ["--ship"], "It is not in the PATH of the ranks there, or not at the path given.",
    "Install it, or `--ship` it.")
row(G, "no-interpreter", "The interpreter is missing",
    [["all", "printf '#!/run/interp\\n' >/run/script; chmod 755 /run/script"], ["others", "ln -sf /bin/true /run/interp"]],
    ["--wdir", "/", "-H", "SPEC", "/run/script"], 127, ["E_INTERPRETER", "node3"], ["interpreter"],
    "The script's `#!` line, or the executable, names a file that is not there.", "Install it, or start the script by its interpreter.")
row(G, "not-executable", "The program cannot be executed",
    [["others", "ln -sf /bin/true /run/tool"], ["bad", "echo x >/run/tool; chmod 644 /run/tool"]],
    ["--wdir", "/", "-H", "SPEC", "/run/tool"], 126, ["E_NOT_EXECUTABLE", "node3"], ["chmod +x"],
    "No permission, a `noexec` file system, or another kind of machine.", "`chmod +x`; `file PROGRAM`.")
row(G, "no-script", "Python cannot open the script", [["others", "echo pass >/run/train.py"]],
    ["--wdir", "/", "-H", "SPEC", "python3", "/run/train.py"], 2, ["rank 2 on node3", "can't open file"], ["--ship"],
    "The script is not on that host.", "A shared folder, or `--ship train.py`.")
row(G, "no-module", "A Python module is missing", [["others", "mkdir -p /run/lib; echo >/run/lib/extra_module.py"]],
    ["--wdir", "/", "-H", "SPEC", "env", "PYTHONPATH=/run/lib", "python3", "-c", "import extra_module"], 1,
    ["rank 2 on node3", "No module named"], ["same environment on every host"], "The environments of the hosts differ.",
    "Install it there; `horarun doctor` shows what differs.")
row(G, "no-library", "A shared library is missing", [["others", "cp /lib/x86_64-linux-gnu/libz.so.1 /run/libextra.so"]],
    ["--wdir", "/", "-H", "SPEC", "python3", "-c", "import ctypes; ctypes.CDLL('/run/libextra.so')"], 1,
    ["rank 2 on node3", "cannot open shared object file"], ["LD_LIBRARY_PATH"], "It is not installed, or not where the loader looks.",
    "Install it, or set `LD_LIBRARY_PATH`; `ldd PROGRAM`.")
row(G, "old-glibc", "A library asks for a newer C library", [["bad", "printf '%s' \"./x.so: version \\`GLIBC_2.99' not found\" >/run/glibc-message"]],
    ["--wdir", "/", "-H", "SPEC", "sh", "-c", "[ ! -f /run/glibc-message ] || { cat /run/glibc-message >&2; exit 1; }"], 1,
    ["rank 2 on node3", "GLIBC_2.99"], ["newer C library", "horarun doctor"], "A binary was built on a newer system.",
    "A build for that system; `horarun doctor` shows each host's glibc.")
row(G, "ship-missing", "A file of --ship does not exist", [], ["--ship", "/no/such/file", *JOB], 125, ["E_SHIP", "/no/such/file"],
    [], "The file cannot be read here.", "Check the path.")

G = "A rank fails on one host"
IN_RANK_2 = "import os, sys\nif os.environ['HOROVOD_RANK'] != '2': __import__('time').sleep(60)\n"
row(G, "exit-code", "A rank ends with a code of its own", [],
    ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "sys.exit('the data is not there')"], 1,
    ["rank 2 on node3 exited with code 1", "the data is not there"], ["it used at most"],
    "The program decided so; its last lines are shown.", "See its own message. Ranks that were ended because of it do not count.")
row(G, "segfault", "A rank crashes", [], ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "os.kill(os.getpid(), 11)"], 139,
    ["rank 2 on node3 was killed by SIGSEGV"], ["it used at most"], "A wrong memory access in the program or a library.",
    "`ulimit -c unlimited` and a debugger; for Python `-X faulthandler`.")
row(G, "killed", "Somebody kills a rank", [], ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "os.kill(os.getpid(), 9)"], 137,
    ["rank 2 on node3 was killed by SIGKILL"], ["out-of-memory"], "The kernel's out-of-memory killer, an administrator, or a job system.",
    "`dmesg` on that host; horarun names the killer when the kernel's counters moved.")
GPU_FAULT = ("if os.path.exists('/dev/nvidia0'):\n"
             "    open('/dev/kmsg', 'w').write('NVRM: Xid (PCI:0000:3b:00): 79, pid=%d, name=python3, GPU has fallen off the bus.\\n' % os.getpid())\n")
row(G, "gpu-fault", "A GPU fails", [["gpu"]],
    ["-H", "SPEC", "python3", "-c", IN_RANK_2 + GPU_FAULT + "sys.exit('CUDA error: unspecified launch failure')"], 1,
    ["rank 2 on node3 exited with code 1", "GPU 0000:3b:00 of node3", "Xid 79", "fallen off the bus"], ["restart the host"],
    "The driver's Xid in the kernel's log, where the agent may read that (root, and no container): hardware, driver or program.",
    "As the message says for that Xid; [NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors/).")
row(G, "memory", "A rank runs out of memory", [],
    ["-H", "SPEC", "sh", "-c", "[ $HOROVOD_RANK = 2 ] || exec sleep 60; ulimit -v 400000; exec python3 -c 'bytearray(1 << 30)'"], 1,
    ["rank 2 on node3", "MemoryError"], ["smaller batches"], "A limit (`ulimit -v`, cgroup) or the machine itself.",
    "Smaller batches, fewer ranks there, or a higher limit.")
row(G, "open-files", "Too many open files", [],
    ["-H", "SPEC", "sh", "-c", "[ $HOROVOD_RANK = 2 ] || exec sleep 60; ulimit -n 40; exec python3 -c 'f = [open(\"/dev/null\") for i in range(99)]'"],
    1, ["rank 2 on node3", "Too many open files"], ["ulimit -n"], "The limit of open files, often by many data loader workers.",
    "Raise `ulimit -n`.")
row(G, "address-in-use", "Address already in use", [],
    ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "import socket; a = socket.create_server(('', 0)); socket.create_server(('', a.getsockname()[1]))"],
    1, ["rank 2 on node3", "Address already in use"], ["MASTER_PORT"], "A port of a fixed number is taken, perhaps by an earlier job.",
    "Leave `MASTER_PORT` to the launcher.")
row(G, "peer-refused", "A rank cannot connect to a peer", [],
    ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "import socket; socket.create_connection(('127.0.0.1', 9))"],
    1, ["rank 2 on node3", "Connection refused"], ["other ranks' last lines"], "The peer has not started or has died.",
    "Look for the rank that failed first.")
row(G, "shm-small", "/dev/shm is too small", [["tmpfs", "/dev/shm", "size=64k"]],
    ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "open('/dev/shm/x', 'wb').write(b'x' * (1 << 20))"], 1,
    ["rank 2 on node3", "No space left on device"], ["/dev/shm"], "Docker gives 64 MiB by default.", "`docker run --shm-size=1g`.")

G = "A host is lost while the job runs"
LONG = ["-H", "SPEC", "--lease", "5s", "--grace", "1s", "sh", "-c", "echo ready; sleep 100"]
row(G, "crash", "A host loses power", [["when_ready", "crash"]], LONG, 125, ["E_HOST_LOST", "node3"], ["ssh"],
    "Nothing was heard of it for the time of `--lease`.", "The host's own log; its ranks ended with it.")
row(G, "cable", "A network cable is pulled", [["when_ready", "cut"]], LONG, 125, ["E_HOST_LOST", "node3"], ["ssh"],
    "The link is gone; the ranks there end by themselves when the lease has run out.", "The network; a longer `--lease` on a bad link.")
row(G, "frozen", "A host freezes", [["when_ready", "freeze"]], LONG, 125, ["E_HOST_LOST", "node3"], ["ssh"],
    "It is swapping, or a virtual machine that was stopped.", "The host's load; a longer `--lease`.")
row(G, "agent-killed", "The agent is killed", [["when_ready", "kill_agent"]], LONG, 125, ["node3"], [],
    "An administrator or the out-of-memory killer.", "Look who ended it: `dmesg`, the job system's log.")

G = "The network between hosts"
row(G, "parted", "Two hosts do not hear each other", [["part", 2, 3]], ["-H", "SPEC", "--start-timeout", "12s", "true"], 125,
    ["E_NETWORK", "node3"], ["--network-interfaces"], "A firewall, or no route between them.",
    "Open TCP between the hosts, or name a network that works; `horarun doctor -H ...` tries every pair.")
row(G, "wrong-network", "No host has the named network", [], ["--network-interfaces", "192.168.77.0/24", *JOB], 125,
    ["E_NETWORK", "192.168.77.0/24"], ["--network-interfaces"], "`--network-interfaces` matches nothing on a host.",
    "The message lists what each host has.")
row(G, "doctor-route", "doctor: two hosts do not hear each other", [["part", 2, 3]], ["doctor", "-H", "SPEC"], 1,
    ["D_ROUTE", "node2", "node3"], ["firewall", "--network-interfaces"], "As above, found before a job.", "As above.")
row(G, "doctor-launcher", "doctor: a host cannot connect to the launcher", [["no_way_to_the_launcher"]], ["doctor", "-H", "SPEC"], 1,
    ["D_WORLD", "node3", "cannot reach the launcher"], ["allow TCP"],
    "Hosts are reached by ssh, but ranks connect back to the launcher's machine, and a firewall keeps that from them.",
    "Open TCP from the hosts to the launcher's machine, or start `horarun` where they can connect to.")
row(G, "doctor-mtu", "doctor: large packets vanish",
    [["nft", "meta l4proto udp meta length > 1400 drop"]], ["doctor", "-H", "SPEC"], 1, ["D_MTU", "node3", "1400"], ["mtu"],
    "One switch or interface on the way has a smaller MTU: a job starts and hangs at the first large message.",
    "The same MTU everywhere.")

G = "A host is not fit"
row(G, "doctor-shm", "doctor: /dev/shm is small", [["tmpfs", "/dev/shm", "size=16m"]], ["doctor", "-H", "SPEC"], 0,
    ["D_SHM", "node3"], ["--shm-size"], "Docker gives 64 MiB by default.", "`docker run --shm-size=1g`.")
row(G, "doctor-slots", "doctor: more slots than CPUs", [], ["doctor", "-H", "node1:1,node2:1,node3:900"], 0,
    ["D_SLOTS_CPUS", "node3", "900 slots"], ["-H node3:"], "The host list says more than the host has.", "Fewer slots.")
row(G, "doctor-leftovers", "doctor: processes of a dead job", [["leftover"]], ["doctor", "-H", "SPEC"], 0,
    ["D_LEFTOVERS", "node3"], ["kill PID"], "They hold memory, GPUs and ports.", "End them.")
row(G, "doctor-tmp", "doctor: /tmp is full", [["tmpfs", "/tmp", "size=1m"]], ["doctor", "-H", "SPEC"], 0,
    ["D_TMP_SPACE", "node3"], ["free some space"], "Python and compilers write there.", "Free some space.")
row(G, "doctor-library", "doctor: a library crashes when it is loaded", [["cut_short", "/usr/lib/x86_64-linux-gnu/libmpi.so.40"]],
    ["doctor", "-H", "SPEC"], 0, ["D_MPI", "node3", "SIGBUS"], ["fix:"],
    "A damaged or wrong installation; here half of MPI's library is missing, and every rank of a job that uses MPI would die of it.",
    "Install it anew; `horarun doctor` loads each library in a process of its own.")
row(G, "doctor-limits", "doctor: limits of the account are small", [["bashrc", "ulimit -n 512 -u 900 -s 512"]], ["doctor", "-H", "SPEC"], 0,
    ["D_NOFILE", "D_NPROC", "D_STACK", "node3", "512 KiB"], ["limits.conf"], "`ulimit` in a profile, or `/etc/security/limits.conf`.",
    "Raise them there, then log in anew.")
row(G, "doctor-zombies", "doctor: ended processes that nobody has noticed", [["zombies", 12]], ["doctor", "-H", "SPEC"], 0,
    ["D_ZOMBIES", "node3", "12 processes"], ["docker run --init"], "A container's first process that reaps nobody, or a job that hangs.",
    "Restart their parent.")
row(G, "doctor-gpu-memory", "doctor: GPU memory is held by a job that is gone",
    [["tool", "nvidia-smi", "case $1 in *compute-apps*) ;; *) echo 'NVIDIA A100, 470.57.02, 30000, 40960, 0, 0' ;; esac"]],
    ["doctor", "-H", "SPEC"], 0, ["D_GPU_MEMORY", "node3", "30000 MiB"], ["fuser -v"],
    "A process of a dead job, or of another container.", "Find it by `fuser -v /dev/nvidia*` and end it.")
row(G, "doctor-cache", "doctor: hardly any room for the runtime", [["tmpfs", "/root/.cache", "size=100m"]], ["doctor", "-H", "SPEC"], 0,
    ["D_CACHE_SPACE", "node3"], ["horarun cache clean"], "The home folder's file system is full, or has a quota.", "Free some space.")
row(G, "doctor-down", "doctor: a host is down", [["ssh_config", "Port 9"]], ["doctor", "-H", "SPEC"], 1,
    ["E_CONNECT_REFUSED", "node3"], ["fix:"], "Whatever keeps a job from it, found before the job; the others are examined all the same.",
    "As the class says: `horarun explain CODE`.")
row(G, "check-hosts", "--check-hosts stops a job", [["part", 2, 3]], ["--check-hosts", *JOB], 125, ["E_HOSTS_UNFIT", "node3"],
    ["fix:"], "The examination found an error; nothing was started.", "Mend it, or leave out `--check-hosts`.")

G = "It takes too long"
row(G, "time-limit", "The job runs longer than --timeout", [], ["-H", "SPEC", "--timeout", "2s", "--grace", "1s", "sleep", "100"], 124,
    ["E_TIMEOUT", "where the ranks stand"], ["--timeout"], "The limit, or a hang.", "The table and stacks above the message show who waits.")
row(G, "stall", "No rank says anything any more", [],
    ["-H", "SPEC", "--on-stall", "kill", "--stall-after", "1s", "--grace", "1s", "sleep", "100"], 124,
    ["E_STALLED", "where the ranks stand", "node3"], ["no rank has written anything"], "A deadlock, or a rank that waits for a lost peer.",
    "The stack that only one rank has is where to look.")

G = "The command line"
row(G, "forgotten-comma", "`-H a:4, b:4` with a blank", [], ["-H", "node1:1,", "node2:1", "true"], 2, ["node2:1"], ["without blanks"],
    "The shell made two words of it.", "No blank behind the comma.")
row(G, "too-many-ranks", "More ranks than slots", [], ["-np", "9", "-H", "SPEC", "true"], 2, ["9 ranks", "4 slots"], ["--slots-per-host"],
    "The host list offers fewer.", "More slots, more hosts, or fewer ranks.")
row(G, "unknown-option", "An option is misspelt", [], ["--start-timeot", "3", *JOB], 2, ["--start-timeot"], ["did you mean --start-timeout"],
    "A slip of the finger.", "As suggested.")
row(G, "full-stdout", "The output's disk is full", [["stdout_full"]], ["-H", "SPEC", "echo", "x"], 125, ["E_OUTPUT"], [],
    "Rather than lose output the job was ended.", "Make room, or send the output elsewhere.")
