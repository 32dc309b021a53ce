// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/failure_code.h"

#include <algorithm>

namespace hora::launcher {

// One table of failure classes serves errors, `explain` and the reference, so the three cannot
// differ.

namespace {

constexpr CodeMeaning kCodes[] = {
    {kExitOk, "every rank succeeded"},
    {kExitUsage, "the command line, or a file that it names, is wrong; nothing was started"},
    {kExitTimeout, "a time limit passed: --start-timeout or --timeout"},
    {kExitLauncher,
     "horarun itself failed; the class stands in square brackets in the message: [E_CONNECT]"},
    {kExitCannotExecute, "the program exists on the host but cannot be executed"},
    {kExitNotFound, "the program does not exist on the host"},
};

}  // namespace

std::span<const CodeMeaning> code_meanings() { return kCodes; }

const FailureClass* find_failure_class(std::string_view code) {
  const auto classes = failure_classes();
  const auto found = std::find_if(classes.begin(), classes.end(),
                                  [code](const FailureClass& row) { return row.code == code; });
  return found == classes.end() ? nullptr : &*found;
}

// An unknown class can only come from a newer agent; the launcher failed then.
int exit_code_of_failure(std::string_view code) {
  const FailureClass* row = find_failure_class(code);
  return row == nullptr ? kExitLauncher : row->exit_code;
}

std::string exit_code_reference() {
  std::string out = "| code | means |\n|---|---|\n";
  for (const CodeMeaning& row : kCodes) {
    out += "| " + std::to_string(row.code) + " | " + std::string(row.meaning) + " |\n";
  }
  out +=
      "| 128 + N | the rank that failed first was ended by signal N |\n"
      "| any other | the rank that failed first ended with this code |\n\n"
      "## Classes of failures\n\n"
      "The class stands in square brackets in the message, and in the events of `--json`. `horarun "
      "explain CLASS` prints\nthe same text.\n\n"
      "| class | exit code | cause | what to do |\n|---|---|---|---|\n";
  for (const FailureClass& row : failure_classes()) {
    out += "| `" + std::string(row.code) + "` | " + std::to_string(row.exit_code) + " | " +
           std::string(row.cause) + " | " + std::string(row.fix) + " |\n";
  }
  return out;
}

namespace {

// The fields are: class, exit code, title, cause, fix, and a command that shows the problem.
// clang-format off
constexpr FailureClass kFailureClasses[] = {
    {failure::kUsage, kExitUsage, "the command line is wrong",
     "horarun did not understand an option, a host specification or a file that the command line "
     "names; or a host cannot have the processes, descriptors, memory or GPUs for as many ranks.",
     "Read the message: it names the place and says what was expected, or what the host lacks. "
     "horarun --help lists the options."},
    {failure::kMissingFeature, kExitUsage, "this build lacks a feature",
     "The option needs a part that was not built because its library was missing.",
     "Run horarun --check-build --verbose, install the library and build again."},
    {failure::kResolve, kExitLauncher, "a host name cannot be resolved",
     "Neither /etc/hosts nor DNS nor ~/.ssh/config knows the host by this name.",
     "Check the spelling. Try 'getent hosts NAME' and 'ssh NAME true'.",
     "getent hosts {host}"},
    {failure::kConnect, kExitLauncher, "cannot connect to a host",
     "Nothing listens on the host's SSH port, or a firewall or a missing route blocks the "
     "connection.",
     "Try 'ssh NAME true'. Check the port (-p), the sshd on the host, and the firewall.",
     "{ssh} -v {host} true"},
    {failure::kRefused, kExitLauncher, "a host refused the SSH connection",
     "The host answers, but nothing listens on the SSH port, or its firewall rejects the "
     "connection.",
     "Start sshd on the host (systemctl start ssh), or give its port with -p.",
     "{ssh} -v {host} true"},
    {failure::kConnectTimeout, kExitLauncher, "a host does not answer",
     "The host did not answer within the start timeout. It is down, or a firewall drops packets.",
     "Check that the host is up. If it is only slow, raise --start-timeout.",
     "{ssh} -o ConnectTimeout=5 {host} true"},
    {failure::kHostKeyUnknown, kExitLauncher, "the SSH key of a host is unknown",
     "No known_hosts file lists the host, so horarun cannot verify that it is the one you mean.",
     "Connect once with 'ssh NAME' and compare the fingerprint, or use --accept-new-host-keys.",
     "{ssh} {host} true"},
    {failure::kHostKeyChanged, kExitLauncher, "the SSH key of a host has changed",
     "The key differs from the one in known_hosts. The host was reinstalled, its address now "
     "belongs to another machine, or an attacker intercepts the connection.",
     "If you know why, remove the old key with 'ssh-keygen -R NAME' and connect once with ssh.",
     "{ssh} -v {host} true"},
    {failure::kSshAuth, kExitLauncher, "a host refused the login",
     "The host accepted none of the offered keys (agent, ~/.ssh/config, -i, default keys) for "
     "this user. horarun never asks for a password.",
     "Try 'ssh -o BatchMode=yes USER@NAME true'. Install your key with ssh-copy-id, give it with "
     "-i, or give the user with -H user@host.",
     "{ssh} -o BatchMode=yes {host} true"},
    {failure::kSshBusy, kExitLauncher, "a host drops new connections",
     "sshd repeatedly closed the connection before the login: too many connections were "
     "unauthenticated at once (MaxStartups), or earlier logins from this address failed "
     "(PerSourcePenalties).",
     "Raise MaxStartups in the host's sshd_config, or lower --fan-out. A penalty passes after 15 s "
     "or more; PerSourcePenaltyExemptList there exempts addresses.",
     "{ssh} {host} true"},
    {failure::kSshProtocol, kExitLauncher, "the SSH connection failed",
     "The connection broke, or the two sides have no algorithm in common.",
     "Try 'ssh -v NAME true'. With --transport command --rsh ssh, horarun uses the system's SSH "
     "client.",
     "{ssh} -v {host} true"},
    {failure::kRemoteShell, kExitLauncher, "the remote shell did not start the agent",
     "The account's login shell printed something else, exited, or is not a POSIX shell that can "
     "start programs (nologin, a forced command, a broken profile).",
     "Try 'ssh NAME true' and read its output. Fix what the profile prints or runs.",
     "{ssh} {host} 'echo ok'"},
    {failure::kNoShell, kExitLauncher, "the account on a host has no login shell",
     "The account's shell is nologin or false, which exits at once, so horarun cannot start "
     "anything.",
     "Use another account (-H user@host), or set a shell on the host: chsh -s /bin/sh USER.",
     "{ssh} {host} 'echo ok'"},
    {failure::kShellTimeout, kExitLauncher, "the login shell of a host does not finish",
     "A login script on the host waits for something or asks a question.",
     "Check ~/.bashrc, ~/.profile or config.fish there. Guard interactive-only commands with '[ "
     "-t 0 ]'.",
     "{ssh} {host} 'echo ok'"},
    {failure::kCache, kExitLauncher, "no usable directory for the runtime on a host",
     "horarun tried the cache directory, $TMPDIR, /tmp and /dev/shm. None is writable, has enough "
     "room and can execute programs.",
     "Free some space, or set XDG_CACHE_HOME on the host. 'horarun cache clean -H NAME' removes "
     "old runtimes.",
     "{ssh} {host} 'df -h ~ /tmp /dev/shm'"},
    {failure::kDiskFull, kExitLauncher, "the disk of a host is full",
     "The runtime does not fit into the cache directory, $TMPDIR, /tmp or /dev/shm.",
     "Free some space on the host. 'horarun cache clean -H NAME' removes old runtimes.",
     "{ssh} {host} 'df -h ~ /tmp /dev/shm; df -i ~ /tmp'"},
    {failure::kAgent, kExitLauncher, "the agent on a host failed",
     "The process that starts the ranks on the host did not start or exited early.",
     "The message quotes its last output. Use --verbose to see each step.",
     "horarun doctor -H {host}"},
    {failure::kCLibrary, kExitLauncher, "a host's C library cannot load the runtime",
     "The runtime that horarun ships needs a glibc that the host does not have: its system is too "
     "old, or has musl.",
     "Leave the host out, or run there in a container image with a newer system. --runtime host "
     "ships no runtime, for programs that do not use it.",
     "{ssh} {host} 'ldd --version'"},
    {failure::kProcessor, kExitLauncher, "there is no build for a host's processor",
     "Agent and runtime are programs for one kind of processor, and this installation has them for "
     "others (horarun --check-build lists which).",
     "Add a build for that processor (docs/reference/systems.md), or leave the host out.",
     "{ssh} {host} 'uname -m'"},
    {failure::kProtocol, kExitLauncher, "launcher and agent do not understand each other",
     "The host sent something that its agent never sends: something else writes to the connection, "
     "or the host is broken or not to be trusted.",
     "Run again with --verbose. A shell profile that prints in the background can cause this. "
     "Otherwise, leave the host out."},
    {failure::kCwd, kExitLauncher, "the working directory does not exist on a host",
     "Ranks start in the directory in which you started horarun, or in --wdir. The host does not "
     "have it.",
     "Use a directory that all hosts share, set --wdir DIR, or copy a script with --ship FILE.",
     "{ssh} {host} 'ls -ld DIR'"},
    {failure::kBind, kExitLauncher, "a host does not have the CPUs that ranks are to be bound to",
     "The host lacks a CPU of --bind cpu-list or a core of --rankfile, its container or batch "
     "system keeps it from the job, or there are more ranks than CPUs listed.",
     "The message names the CPUs that the job may use there. List those, or use --bind core.",
     "{ssh} {host} 'grep Cpus_allowed_list /proc/self/status'"},
    {failure::kShip, kExitLauncher, "a file could not be shipped",
     "horarun cannot read a file of --ship or --ship-env here, or cannot write it on the host; or "
     "the host lacks the Python that the environment of --ship-env was made from.",
     "Check that the file exists and is readable, and that the host has room for it. Make the "
     "environment from a Python that travels along (docs/howto/ship.md)."},
    {failure::kNetwork, kExitLauncher, "the hosts have no network in common",
     "The hosts cannot reach each other on any address, or --network-interfaces matches nothing "
     "on a host. The message lists what each host has; one without any address has its loopback "
     "interface down.",
     "Select the network, for example --network-interfaces 10.0.0.0/8 or eth0. Check firewalls "
     "between the hosts.",
     "horarun doctor -H {host}"},
    {failure::kStartTimeout, kExitTimeout, "the start took too long",
     "Not every host was ready within --start-timeout. The message names those that were not.",
     "Raise --start-timeout (or HOROVOD_START_TIMEOUT), or leave the slow hosts out."},
    {failure::kTimeout, kExitTimeout, "the job exceeded --timeout",
     "The time limit of the job passed, and horarun ended all ranks.",
     "Raise --timeout, or find out what the ranks were waiting for."},
    {failure::kStalled, kExitTimeout, "the job stalled and was ended",
     "No rank wrote anything for --stall-after, and --on-stall kill was given.",
     "Read the stacks above the message: most ranks wait for the one that stands elsewhere."},
    {failure::kReport, kExitLauncher, "the report could not be written",
     "The file of --report cannot be made, its disk is full, or no process reads from the pipe that it "
     "is.",
     "Name another file."},
    {failure::kHostLost, kExitLauncher, "a host was lost while its ranks ran",
     "The connection ended, or the host was silent for longer than --lease: it crashed, was "
     "disconnected, or its agent was killed. Its ranks end by themselves after the same time.",
     "Check the host's own log (power, out of memory, network). Raise --lease on a slow link.",
     "{ssh} {host} 'uptime; dmesg | tail'"},
    {failure::kElsewhere, kExitLauncher, "node 0 has ended the job",
     "A platform runs the same command on several nodes, which share no secret, and the first "
     "failure was on another one. The exit code is that of node 0.",
     "Read the output of node 0, which names the failure, and that of the node where it was."},
    {failure::kEngine, kExitLauncher, "the batch system or Kubernetes has ended the job",
     "The job was cancelled (scancel, qdel, bkill) or preempted, its time limit passed, one of its "
     "nodes failed, or the command that had started the agents was killed. In Kubernetes, a pod was "
     "evicted, deleted, preempted or killed for its memory. The message has the engine's own words.",
     "Ask for more time, or submit the job again. A training that saves checkpoints goes on from the "
     "last one."},
    {failure::kRsh, kExitLauncher, "the command that reaches a host failed",
     "The command of --rsh, or that of a batch system (srun, qrsh, blaunch), exited or started no "
     "agent in time.",
     "Run it by hand: COMMAND HOST true. The message quotes its last lines. In a batch system, look "
     "at its daemon on that host."},
    {failure::kContainer, kExitLauncher, "a host does not run the image of --container",
     "The host has no program for it (apptainer, podman or docker), the image is not there, its "
     "registry asks for a login, or the program may not make containers. The message has its words.",
     "Run the image by hand on that host: podman run --rm IMAGE true. Log in there (podman login), "
     "or fetch the image before the job. --container-runtime chooses another program."},
    {failure::kRendezvous, kExitLauncher, "the rendezvous server could not start",
     "The server could not listen on the chosen address.",
     "Choose another network with --network-interfaces. Check the limit on open files."},
    {failure::kOutput, kExitLauncher, "the ranks' output could not be written",
     "Standard output, a file of --output-filename, the events of --json or a timeline took no "
     "more bytes: a disk is full, a quota is used up, a device is gone. Without standard output "
     "the job was ended; without the others it went on, and the message names what is cut off.",
     "Make room, or send the output elsewhere."},
    {failure::kUnfit, kExitLauncher, "--check-hosts found errors",
     "The examination found a problem that would keep the job from running, so horarun started "
     "nothing.",
     "Fix what the report names. Without --check-hosts, horarun tries to run the job anyway.",
     "horarun doctor -H HOSTS"},
    {failure::kPmi, kExitLauncher, "a host cannot serve PMI to its ranks",
     "With --pmi, a process on each host serves PMI to the ranks there. It did not start, or it "
     "exited before them. PMIx needs libpmix.so.2, the host's own or one that was sent (HORA_MPI).",
     "The message says why. For --pmi pmix, install that library on the host (Debian, Ubuntu: "
     "libpmix2), or add its directory to LD_LIBRARY_PATH.",
     "{ssh} {host} 'ldconfig -p | grep libpmix'"},
    {failure::kKubernetes, kExitLauncher, "Kubernetes does not run the job's pods",
     "horarun k8s could not make the Job, a pod ended before the ranks began, or its image cannot be "
     "pulled. The message has Kubernetes' own words.",
     "Try 'kubectl auth can-i create jobs' and 'kubectl describe job NAME'. horarun k8s --dry-run "
     "prints what it makes; --manifest FILE makes what you have edited."},
    {failure::kLibrary, kExitLauncher, "a host lacks a vendor's library",
     "The job needs a library that belongs to the site, such as Open MPI. The host has none that "
     "programs can load, and HORA_MPI or HORA_NCCL says that none is sent, or it cannot be sent "
     "there.",
     "Install the library on the host, name its folder in LD_LIBRARY_PATH, or let horarun send this "
     "machine's: HORA_MPI=auto, HORA_NCCL=auto.",
     "{ssh} {host} 'ldconfig -p | grep libmpi'"},
    {failure::kInternal, kExitLauncher, "internal error",
     "This is a bug in horarun.",
     "Please report it with the output of --verbose."},
    {failure::kDiscovery, kExitLauncher, "the hosts of an elastic job cannot be discovered",
     "The script of --host-discovery-script failed, took too long, or printed an invalid host "
     "before it had listed any.",
     "Run the script by hand: it prints one 'host' or 'host:slots' per line and exits with 0."},
    {failure::kElasticTimeout, kExitTimeout, "an elastic job timed out waiting for hosts or ranks",
     "Fewer ranks than -np or --min-np were available during --elastic-timeout, or a rank did not "
     "meet the others again in that time.",
     "Find out which hosts failed and why. Add hosts, lower --min-np, or raise the limit."},
    {failure::kElasticHosts, kExitLauncher, "too few hosts are left for an elastic job",
     "Hosts from -H or the hostfile failed, and no other hosts can join.",
     "Give more hosts, a lower --min-np, a --blacklist-cooldown-range, or a discovery script."},
    {failure::kElasticState, kExitLauncher, "no rank with the state of an elastic job is left",
     "All ranks that had taken part in the training ended or were lost, so no rank can restore "
     "its state.",
     "Save checkpoints to disk and restart from the last one."},
    {failure::kResetLimit, kExitLauncher, "an elastic job was reset too often",
     "Ranks or hosts failed, joined or left more often than --reset-limit allows.",
     "Find out why ranks fail. Raise the limit if hosts are expected to come and go."},
    {failure::kProgramNotFound, kExitNotFound, "the program does not exist on a host",
     "The PATH of the ranks on the host has no file of this name, or the given path does not "
     "exist.",
     "Install it on the host, copy it with --ship, or use a path that all hosts share.",
     "{ssh} {host} 'command -v PROGRAM; echo $PATH'"},
    {failure::kInterpreter, kExitNotFound, "the program's interpreter does not exist on a host",
     "The script's first line (#!) names an interpreter that the host does not have.",
     "Install it on the host, or start the script with its interpreter: horarun ... python "
     "script.py.",
     "{ssh} {host} 'head -1 PROGRAM'"},
    {failure::kLoader, kExitNotFound, "the program's dynamic loader does not exist on a host",
     "The executable names a dynamic loader that the host does not have: it was built for another "
     "C library (glibc, musl), for 32 bits, or for a folder of the machine that built it (Nix, "
     "conda).",
     "Build it for the host's C library, or link it statically; install the C library that it "
     "names; or run it in a container image that has it.",
     "{ssh} {host} 'ls -l /lib*/ld-*'"},
    {failure::kNotExecutable, kExitCannotExecute, "the program cannot be executed on a host",
     "The file exists but is not executable, is on a file system mounted noexec, or is built for "
     "another architecture.",
     "Run chmod +x on it. Check the mount options and 'file PROGRAM' on the host.",
     "{ssh} {host} 'ls -l PROGRAM; file PROGRAM'"},
    {failure::kNoProcess, kExitCannotExecute, "a host cannot create a rank's process",
     "The kernel refused to create a process, session or descriptor: the user, the cgroup or the "
     "machine has reached a limit.",
     "Check ulimit -u, pids.max and memory.max of the user's cgroup, and free memory on the host.",
     "{ssh} {host} 'ulimit -u; free -m; cat /proc/self/cgroup'"},
    {failure::kOutOfMemory, kExitSignalBase + 9, "the kernel killed a rank because memory ran out",
     "The host, or the memory limit of the rank's cgroup, was exhausted, and the kernel killed a "
     "process (SIGKILL).",
     "Start fewer ranks on the host, use smaller batches, or raise the limit. The report shows "
     "each rank's peak memory.",
     "{ssh} {host} 'dmesg | grep -i oom'"},
};
// clang-format on

}  // namespace

std::span<const FailureClass> failure_classes() { return kFailureClasses; }

}  // namespace hora::launcher
