# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as data: one row per fault. test_faults.py puts each into one of eight hosts (node3) and
expects horarun to name it; docs/troubleshooting.md is made from the same rows (scripts/check.d/troubleshooting).

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
    "The host is up, but nothing listens on the SSH port.", "Start sshd there, or give its port with `-p`.")
row(G, "black-hole", "No answer: the host is down or a firewall drops packets",
    [["ssh_config", "ConnectTimeout 2"], ["cut"]], JOB, 125, ["E_CONNECT_TIMEOUT", "node3", "no answer"],
    ["firewall", "ConnectTimeout=5 node3"], "The host is down, or a firewall drops packets to its SSH port.",
    "Check that it is up and reachable: `ssh -o ConnectTimeout=5 NAME true`.")
row(G, "no-route", "No route to host", [["ssh_config", "HostName 10.79.0.99"]], [*JOB[:2], "--start-timeout", "10s", "true"],
    125, ["E_CONNECT", "node3"], ["ssh"], "No host has that address: it is off, or its address has changed.",
    "Check the address: `getent hosts NAME`.")
row(G, "hanging-sshd", "The connection opens, then nothing happens", [["freeze"]],
    ["-H", "SPEC", "--start-timeout", "5s", "true"], 125, ["E_CONNECT_TIMEOUT", "node3", "ssh banner", "sends no banner"], ["hangs"],
    "The host or its sshd hangs, or is overloaded with logins: the kernel accepts the connection, but sshd does not answer.",
    "Check the host's console and load, and `MaxStartups`; lower `--fan-out`; restart it.")
row(G, "not-ssh", "Something else listens on the SSH port", [["ssh_config", "ProxyCommand printf 'HTTP/1.1 400 Bad\\r\\n'"]],
    JOB, 125, ["E_SSH_PROTOCOL", "node3", "HTTP/1.1"], ["port"], "The port belongs to another service.", "Check `-p`.")
row(G, "busy", "sshd drops connections (MaxStartups)",
    [["speaker", "Exceeded MaxStartups"]],
    ["-H", "SPEC", "--start-timeout", "3s", "true"], 125, ["E_SSH_BUSY", "node3"], ["MaxStartups", "--fan-out"],
    "Too many connections are waiting to log in; horarun retried until the start timeout.",
    "Raise `MaxStartups` in its `sshd_config`, or lower `--fan-out`.")
row(G, "penalty", "sshd refuses this address (PerSourcePenalties)",
    [["speaker", "Not allowed at this time"]],
    ["-H", "SPEC", "true"], 125, ["E_SSH_BUSY", "node3"], ["PerSourcePenaltyExemptList"],
    "Earlier logins from this address failed, and OpenSSH 9.8 or later refuses it for a while.",
    "Wait 15 s or longer, or exempt the address in its `sshd_config`; see that the login itself works.")
row(G, "proxy", "The connection through a jump host fails", [["ssh_config", "ProxyCommand sh -c 'echo no way >&2; exit 1'"]],
    JOB, 125, ["E_CONNECT", "node3", "no way"], ["ssh"], "The `ProxyCommand` or `ProxyJump` of `~/.ssh/config` failed.",
    "Run it by hand; the message has its last output.")

G = "A host refuses the login"
row(G, "unknown-key", "The host's key is not known", [["ssh_config", "UserKnownHostsFile /dev/null", "GlobalKnownHostsFile /dev/null"]],
    JOB, 125, ["E_HOST_KEY_UNKNOWN", "node3"], ["--accept-new-host-keys", "ssh-keyscan"],
    "No `known_hosts` file lists the host, so its identity cannot be verified.",
    "Connect once with `ssh NAME` and compare the fingerprint, or use `--accept-new-host-keys`.")
row(G, "changed-key", "The host's key has changed", [["other_host_key"]], JOB, 125, ["E_HOST_KEY_CHANGED", "node3"],
    ["ssh -F"], "The host was reinstalled, its address now belongs to another host, or an attacker intercepts the connection.",
    "If you know why: remove the line that the message names (`ssh-keygen -R NAME`, if it is for this host alone), then connect once with `ssh`.")
row(G, "wrong-key", "No key is accepted", [["other_key"]], JOB, 125, ["E_SSH_AUTH", "node3"], ["-i", "authorized_keys"],
    "None of the keys offered (agent, `~/.ssh/config`, `-i`, default keys) is accepted for this user.",
    "`ssh-copy-id NAME`, `-i FILE`, or `-H user@host`.")
row(G, "unknown-user", "The user does not exist there", [["ssh_config", "User no-such-user"]], JOB, 125,
    ["E_SSH_AUTH", "node3", "no-such-user"], ["authorized_keys"], "sshd reports an unknown user like a wrong key.",
    "Name the user: `-H user@host`.")
row(G, "loose-modes", "sshd refuses a valid key because of file modes", [["sshd_strict_modes"]], JOB, 125,
    ["E_SSH_AUTH", "node3"], ["written by others"],
    "sshd ignores `authorized_keys` if the file, `~/.ssh` or the home directory is writable by others (`StrictModes`).",
    "On that host: `chmod go-w ~ ~/.ssh ~/.ssh/authorized_keys`.")

G = "The login shell gets in the way"
row(G, "no-shell", "The account has no login shell", [["shell", "nologin"]], JOB, 125, ["E_NO_SHELL", "node3"],
    ["-H user@host"], "The account's shell is `nologin` or `false`.", "Use another account, or give it a shell: `chsh`.")
row(G, "shell-exits", "A login script ends the session", [["bashrc", "echo maintenance until noon; exit 255"]], JOB, 125,
    ["E_REMOTE_SHELL", "node3", "maintenance until noon"], ["ssh"], "`~/.bashrc` or a profile there calls `exit`.",
    "What it printed is in the message; `ssh NAME 'echo ok'`.")
row(G, "shell-waits", "A login script never ends", [["bashrc", "sleep 1000"]],
    ["-H", "SPEC", "--start-timeout", "5s", "true"], 125, ["E_SHELL_TIMEOUT", "node3"], ["login script"],
    "It asks a question, or waits for a file system that does not answer.", "Run interactive parts only if there is a terminal: `[ -t 0 ]`.")
row(G, "forced-command", "The key may only run one command", [["sshd", "ForceCommand echo only this"]], JOB, 125,
    ["E_REMOTE_SHELL", "node3", "only this"], ["ssh"], "`ForceCommand` or `command=` in `authorized_keys`.", "Use another key.")
row(G, "noise", "The login prints a banner", [["bashrc", "echo Welcome; printf 'no line feed'; echo oops >&2"]], JOB, 0,
    [], [], "None: output of a login script is not mistaken for the agent's.", "None is needed.")

G = "There is no room on a host"
row(G, "disk-full", "The disk is full", [["full", "/root", "/tmp", "/dev/shm"]], JOB, 125, ["E_DISK_FULL", "node3", "is full"],
    ["free some space", "df -h"], "The runtime does not fit into the cache, `$TMPDIR`, `/tmp` or `/dev/shm`.",
    "Free some space; `horarun cache clean -H NAME`.")
row(G, "noexec", "No directory allows programs to run", [["tmpfs", "/root", "noexec"], ["tmpfs", "/tmp", "noexec"], ["tmpfs", "/dev/shm", "noexec"]],
    JOB, 125, ["E_CACHE", "node3", "noexec"], ["XDG_CACHE_HOME"], "Home, `/tmp` and `/dev/shm` are mounted `noexec` or read-only.",
    "Set `XDG_CACHE_HOME` of that account to a directory that allows it.")
row(G, "read-only-home", "The home directory is read-only", [["tmpfs", "/root", "ro"]], JOB, 0, [], [],
    "None: the runtime goes to `/tmp` instead.", "None is needed.")
row(G, "rank-disk-full", "A rank cannot write", [["tmpfs", "/mnt", "size=64k"]],
    ["-H", "SPEC", "python3", "-c", "open('/mnt/x','wb').write(b'x' * (1 << 20)) if __import__('os').environ['HOROVOD_RANK'] == '2' else None"],
    1, ["rank 2 on node3", "No space left on device"], ["df -h"], "A disk, a quota or `/dev/shm` of the host is full.", "`df -h` there.")

G = "A program does not start on one host"
row(G, "no-directory", "The working directory is missing", [["others", "mkdir -p /run/work"]],
    ["--wdir", "/run/work", *JOB], 125, ["E_CWD", "node3", "/run/work"], ["--wdir", "--ship"],
    "Ranks start in the directory where horarun was started, or in `--wdir`; it does not exist there.", "Use a shared directory, `--wdir DIR`, or `--ship FILE`.")
row(G, "no-program", "The program is missing", [["others", "ln -sf /bin/true /run/prog"]], ["--wdir", "/", "-H", "SPEC", "/run/prog"],
    127, ["E_PROGRAM_NOT_FOUND", "node3", "/run/prog"], ["--ship"], "It is not in the PATH of the ranks there, or not at the path given.",
    "Install it, or `--ship` it.")
row(G, "no-interpreter", "The interpreter is missing",
    [["all", "printf '#!/run/interp\\n' >/run/script; chmod 755 /run/script"], ["others", "ln -sf /bin/true /run/interp"]],
    ["--wdir", "/", "-H", "SPEC", "/run/script"], 127, ["E_INTERPRETER", "node3"], ["interpreter"],
    "The `#!` line of the script names a file that does not exist.", "Install it, or start the script with its interpreter.")
row(G, "no-loader", "The dynamic loader is missing",
    [["all", "LC_ALL=C sed 's#/ld-linux#/no-linux#' /bin/true >/run/tool; chmod 755 /run/tool"],
     ["others", "ln -sf /bin/true /run/tool"]],
    ["--wdir", "/", "-H", "SPEC", "/run/tool"], 127, ["E_LOADER", "node3", "/run/tool"], ["statically"],
    "The executable was built for another C library (musl, an older one), for 32 bits, or for folders of the machine that built it.",
    "Build it for the host, link it statically, or use a container image.")
row(G, "not-executable", "The program cannot be executed",
    [["others", "ln -sf /bin/true /run/tool"], ["bad", "echo x >/run/tool; chmod 644 /run/tool"]],
    ["--wdir", "/", "-H", "SPEC", "/run/tool"], 126, ["E_NOT_EXECUTABLE", "node3"], ["chmod +x"],
    "No permission, a `noexec` file system, or another kind of machine.", "`chmod +x`; `file PROGRAM`.")
row(G, "no-script", "Python cannot open the script", [["others", "echo pass >/run/train.py"]],
    ["--wdir", "/", "-H", "SPEC", "python3", "/run/train.py"], 2, ["rank 2 on node3", "can't open file"], ["--ship"],
    "The script is not on that host.", "Use a shared directory, or `--ship train.py`.")
row(G, "no-module", "A Python module is missing", [["others", "mkdir -p /run/lib; echo >/run/lib/extra_module.py"]],
    ["--wdir", "/", "-H", "SPEC", "env", "PYTHONPATH=/run/lib", "python3", "-c", "import extra_module"], 1,
    ["rank 2 on node3", "No module named"], ["same environment on every host"], "The environments of the hosts differ.",
    "Install it there; `horarun doctor` shows what differs.")
row(G, "no-library", "A shared library is missing", [["others", "cp /lib/x86_64-linux-gnu/libz.so.1 /run/libextra.so"]],
    ["--wdir", "/", "-H", "SPEC", "python3", "-c", "import ctypes; ctypes.CDLL('/run/libextra.so')"], 1,
    ["rank 2 on node3", "cannot open shared object file"], ["LD_LIBRARY_PATH"], "It is not installed, or not in the loader's search path.",
    "Install it, or set `LD_LIBRARY_PATH`; `ldd PROGRAM`.")
row(G, "old-glibc", "A library needs a newer C library", [["bad", "printf '%s' \"./x.so: version \\`GLIBC_2.99' not found\" >/run/glibc-message"]],
    ["--wdir", "/", "-H", "SPEC", "sh", "-c", "[ ! -f /run/glibc-message ] || { cat /run/glibc-message >&2; exit 1; }"], 1,
    ["rank 2 on node3", "GLIBC_2.99"], ["newer C library", "horarun doctor"], "A binary was built on a newer system.",
    "Build it for that system; `horarun doctor` shows the glibc of each host.")
row(G, "ship-missing", "A file of --ship does not exist", [], ["--ship", "/no/such/file", *JOB], 2, ["--ship", "/no/such/file"],
    [], "The file cannot be read here.", "Check the path.")

G = "A rank fails on one host"
IN_RANK_2 = "import os, sys\nif os.environ['HOROVOD_RANK'] != '2': __import__('time').sleep(60)\n"
row(G, "exit-code", "A rank exits with an error code", [],
    ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "sys.exit('the data is not there')"], 1,
    ["rank 2 on node3 exited with code 1", "the data is not there"], ["it used at most"],
    "The program exited with that code; the message has its last lines.", "Read its own message. Ranks that horarun ended because of it do not count.")
row(G, "segfault", "A rank crashes", [], ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "os.kill(os.getpid(), 11)"], 139,
    ["rank 2 on node3 was killed by SIGSEGV"], ["it used at most"], "A wrong memory access in the program or a library.",
    "`ulimit -c unlimited` and a debugger; for Python `-X faulthandler`.")
row(G, "killed", "A rank is killed", [], ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "os.kill(os.getpid(), 9)"], 137,
    ["rank 2 on node3 was killed by SIGKILL"], ["out-of-memory"], "The kernel's out-of-memory killer, an administrator, or a job system.",
    "`dmesg` on that host; horarun names the OOM killer if the kernel's counters changed.")
GPU_FAULT = ("if os.path.exists('/dev/nvidia0'):\n"
             "    open('/dev/kmsg', 'w').write('NVRM: Xid (PCI:0000:3b:00): 79, pid=%d, name=python3, GPU has fallen off the bus.\\n' % os.getpid())\n")
row(G, "gpu-fault", "A GPU fails", [["gpu"]],
    ["-H", "SPEC", "python3", "-c", IN_RANK_2 + GPU_FAULT + "sys.exit('CUDA error: unspecified launch failure')"], 1,
    ["rank 2 on node3 exited with code 1", "GPU 0000:3b:00 of node3", "Xid 79", "fallen off the bus"], ["power-cycle the host"],
    "Hardware, driver or program: the kernel log has the driver's Xid. The agent can read it only as root and outside of containers.",
    "Follow the message for that Xid; [NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors/).")
row(G, "memory", "A rank runs out of memory", [],
    ["-H", "SPEC", "sh", "-c", "[ $HOROVOD_RANK = 2 ] || exec sleep 60; ulimit -v 400000; exec python3 -c 'bytearray(1 << 30)'"], 1,
    ["rank 2 on node3", "MemoryError"], ["smaller batches"], "A limit (`ulimit -v`, cgroup) or the machine itself.",
    "Use smaller batches, fewer ranks there, or a higher limit.")
row(G, "open-files", "Too many open files", [],
    ["-H", "SPEC", "sh", "-c", "[ $HOROVOD_RANK = 2 ] || exec sleep 60; ulimit -n 40; exec python3 -c 'f = [open(\"/dev/null\") for i in range(99)]'"],
    1, ["rank 2 on node3", "Too many open files"], ["ulimit -n"], "The limit of open files is reached, often by data loader workers.",
    "Raise `ulimit -n`.")
row(G, "address-in-use", "Address already in use", [],
    ["-H", "SPEC", "python3", "-c", IN_RANK_2 + "import socket; a = socket.create_server(('', 0)); socket.create_server(('', a.getsockname()[1]))"],
    1, ["rank 2 on node3", "Address already in use"], ["MASTER_PORT"], "A fixed port is in use, perhaps by an earlier job.",
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
    "The host was silent for longer than `--lease`.", "Check the host's log; its ranks ended with it.")
row(G, "cable", "A network cable is pulled", [["when_ready", "cut"]], LONG, 125, ["E_HOST_LOST", "node3"], ["ssh"],
    "The link is down; the ranks there end by themselves when the lease expires.", "Check the network; use a longer `--lease` on a bad link.")
row(G, "frozen", "A host freezes", [["when_ready", "freeze"]], LONG, 125, ["E_HOST_LOST", "node3"], ["ssh"],
    "It is swapping, or is a virtual machine that was paused.", "Check the host's load; use a longer `--lease`.")
row(G, "agent-killed", "The agent is killed", [["when_ready", "kill_agent"]], LONG, 125, ["node3"], [],
    "An administrator or the out-of-memory killer.", "Find out who killed it: `dmesg`, the log of the job system.")

G = "The network between hosts"
row(G, "parted", "Two hosts cannot reach each other", [["part", 2, 3]], ["-H", "SPEC", "--start-timeout", "12s", "true"], 125,
    ["E_NETWORK", "node3"], ["--network-interfaces"], "A firewall, or no route between them.",
    "Allow TCP between the hosts, or name a network that works; `horarun doctor -H ...` tries every pair.")
row(G, "wrong-network", "No host has the named network", [], ["--network-interfaces", "192.168.77.0/24", *JOB], 125,
    ["E_NETWORK", "192.168.77.0/24"], ["--network-interfaces"], "`--network-interfaces` matches nothing on a host.",
    "The message lists what each host has.")
row(G, "doctor-route", "doctor: two hosts cannot reach each other", [["part", 2, 3]], ["doctor", "-H", "SPEC"], 1,
    ["D_ROUTE", "node2", "node3"], ["firewall", "--network-interfaces"], "As above, found before a job.", "As above.")
row(G, "doctor-launcher", "doctor: a host cannot connect to the launcher", [["no_way_to_the_launcher"]], ["doctor", "-H", "SPEC"], 1,
    ["D_WORLD", "node3", "cannot reach the launcher"], ["allow TCP"],
    "The launcher reaches the hosts by ssh, but ranks connect back to the launcher's machine, and a firewall blocks that.",
    "Allow TCP from the hosts to the launcher's machine, or start `horarun` on a machine that they can reach.")
row(G, "doctor-mtu", "doctor: large packets vanish",
    [["nft", "meta l4proto udp meta length > 1400 drop"]], ["doctor", "-H", "SPEC"], 1, ["D_MTU", "node3", "1400"], ["mtu"],
    "A switch or interface on the way has a smaller MTU: a job starts and hangs at the first large message.",
    "Set the same MTU everywhere.")

G = "A host is not fit"
row(G, "doctor-shm", "doctor: /dev/shm is small", [["tmpfs", "/dev/shm", "size=16m"]], ["doctor", "-H", "SPEC"], 0,
    ["D_SHM", "node3"], ["--shm-size"], "Docker gives 64 MiB by default.", "`docker run --shm-size=1g`.")
row(G, "doctor-slots", "doctor: more slots than CPUs", [], ["doctor", "-H", "node1:1,node2:1,node3:900"], 0,
    ["D_SLOTS_CPUS", "node3", "900 slots"], ["-H node3:"], "The host list has more slots than the host has CPUs.", "Use fewer slots.")
row(G, "doctor-leftovers", "doctor: processes of a dead job", [["leftover"]], ["doctor", "-H", "SPEC"], 0,
    ["D_LEFTOVERS", "node3"], ["kill PID"], "They hold memory, GPUs and ports.", "End them.")
row(G, "doctor-tmp", "doctor: /tmp is full", [["tmpfs", "/tmp", "size=1m"]], ["doctor", "-H", "SPEC"], 0,
    ["D_TMP_SPACE", "node3"], ["free some space"], "Python and compilers write there.", "Free some space.")
row(G, "doctor-library", "doctor: a library crashes when it is loaded", [["cut_short", "/usr/lib/x86_64-linux-gnu/libmpi.so.40"]],
    ["doctor", "-H", "SPEC"], 0, ["D_MPI", "node3", "SIGBUS"], ["fix:"],
    "A damaged or wrong installation; here half of MPI's library is missing, and every rank of a job that uses MPI would crash.",
    "Reinstall it; `horarun doctor` loads each library in a separate process.")
row(G, "doctor-limits", "doctor: limits of the account are small", [["bashrc", "ulimit -n 512 -u 900 -s 512"]], ["doctor", "-H", "SPEC"], 0,
    ["D_NOFILE", "D_NPROC", "D_STACK", "node3", "512 KiB"], ["limits.conf"], "`ulimit` in a profile, or `/etc/security/limits.conf`.",
    "Raise them there, then log in again.")
row(G, "doctor-zombies", "doctor: zombie processes", [["zombies", 12]], ["doctor", "-H", "SPEC"], 0,
    ["D_ZOMBIES", "node3", "12 processes"], ["docker run --init"], "The first process of a container does not reap its children, or a job hangs.",
    "Restart their parent.")
row(G, "doctor-gpu-memory", "doctor: GPU memory is held by a job that is gone",
    [["tool", "nvidia-smi", "case $1 in *compute-apps*) ;; *) echo 'NVIDIA A100, 470.57.02, 30000, 40960, 0, 0' ;; esac"]],
    ["doctor", "-H", "SPEC"], 0, ["D_GPU_MEMORY", "node3", "30000 MiB"], ["fuser -v"],
    "A process of a dead job, or of another container.", "Find it with `fuser -v /dev/nvidia*` and end it.")
row(G, "doctor-cache", "doctor: too little space for the runtime", [["tmpfs", "/root/.cache", "size=100m"]], ["doctor", "-H", "SPEC"], 0,
    ["D_CACHE_SPACE", "node3"], ["horarun cache clean"], "The file system of the home directory is full, or a quota is reached.", "Free some space.")
row(G, "doctor-down", "doctor: a host is down", [["ssh_config", "Port 9"]], ["doctor", "-H", "SPEC"], 1,
    ["E_CONNECT_REFUSED", "node3"], ["fix:"], "The same error as a job would have; the other hosts are still examined.",
    "As the class says: `horarun explain CODE`.")
row(G, "check-hosts", "--check-hosts stops a job", [["part", 2, 3]], ["--check-hosts", *JOB], 125, ["E_HOSTS_UNFIT", "node3"],
    ["fix:"], "The examination found an error; nothing was started.", "Fix it, or leave out `--check-hosts`.")

G = "It takes too long"
row(G, "time-limit", "The job runs longer than --timeout", [], ["-H", "SPEC", "--timeout", "2s", "--grace", "1s", "sleep", "100"], 124,
    ["E_TIMEOUT", "where the ranks stand"], ["--timeout"], "The job needs more time, or hangs.", "The table and stacks above the message show which ranks wait.")
row(G, "stall", "No rank prints anything any more", [],
    ["-H", "SPEC", "--on-stall", "kill", "--stall-after", "1s", "--grace", "1s", "sleep", "100"], 124,
    ["E_STALLED", "where the ranks stand", "node3"], ["no rank has written anything"], "A deadlock, or a rank that waits for a lost peer.",
    "Look at the stack that only one rank has.")

G = "The command line"
row(G, "forgotten-comma", "`-H a:4, b:4` with a blank", [], ["-H", "node1:1,", "node2:1", "true"], 2, ["node2:1", "looks like a host, but the program is expected here"], ["without blanks"],
    "The shell splits it into two words.", "Remove the blank after the comma.")
row(G, "too-many-ranks", "More ranks than slots", [], ["-np", "9", "-H", "SPEC", "true"], 2, ["9 ranks", "4 slots"], ["--slots-per-host"],
    "The host list has fewer slots.", "Use more slots, more hosts, or fewer ranks.")
row(G, "unknown-option", "An option is misspelt", [], ["--start-timeot", "3", *JOB], 2, ["--start-timeot"], ["did you mean --start-timeout"],
    "A typo.", "Use the suggested name.")
row(G, "full-stdout", "The output's disk is full", [["stdout_full"]], ["-H", "SPEC", "echo", "x"], 125, ["E_OUTPUT"], [],
    "horarun ended the job rather than lose output.", "Free some space, or write the output elsewhere.")
