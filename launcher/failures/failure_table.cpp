#include "launcher/failures/exit_code.h"
#include "launcher/failures/failure_code.h"

namespace hora::launcher {

namespace {

// clang-format off
constexpr FailureClass kClasses[] = {
    {failure::kUsage, kExitUsage, "the command line is wrong",
     "An option, a host specification or a file that the command line names was not understood.",
     "Read the message: it names the place and what was expected. horarun --help shows the options."},
    {failure::kMissingFeature, kExitUsage, "this build cannot do that",
     "The option needs a part that was not built, as its library was missing.",
     "See horarun --check-build --verbose; install the library and build again."},
    {failure::kResolve, kExitLauncher, "a host name is not known",
     "Neither /etc/hosts, nor DNS, nor ~/.ssh/config knows the host by this name.",
     "Check the spelling; try 'getent hosts NAME' and 'ssh NAME true'.",
     "getent hosts {host}"},
    {failure::kConnect, kExitLauncher, "a host cannot be connected",
     "Nothing listens on the SSH port of the host, or a firewall or a missing route is in the way.",
     "Try 'ssh NAME true'; check the port (-p), that sshd runs there, and the firewall.",
     "{ssh} -v {host} true"},
    {failure::kRefused, kExitLauncher, "a host refuses SSH connections",
     "The host is up and answers, but nothing listens on the SSH port, or its firewall rejects us.",
     "Start sshd there (systemctl start ssh), or name the port it listens on by -p.",
     "{ssh} -v {host} true"},
    {failure::kConnectTimeout, kExitLauncher, "a host does not answer",
     "No answer to the connection came within the start timeout: the host is down or a firewall "
     "drops packets.",
     "Check that the host is up; raise --start-timeout if it is only slow.",
     "{ssh} -o ConnectTimeout=5 {host} true"},
    {failure::kHostKeyUnknown, kExitLauncher, "a host's SSH key is not known",
     "The host is in no known_hosts file, so nothing says that it is the host you mean.",
     "Connect once by 'ssh NAME' and compare the fingerprint, or use --accept-new-host-keys.",
     "{ssh} {host} true"},
    {failure::kHostKeyChanged, kExitLauncher, "a host's SSH key has changed",
     "The key differs from the one in known_hosts: the host was installed anew, its address now "
     "belongs to another one, or somebody is in between.",
     "If you know why, remove the old key by 'ssh-keygen -R NAME' and connect once by ssh.",
     "{ssh} -v {host} true"},
    {failure::kSshAuth, kExitLauncher, "a host refused the login",
     "None of the keys that were offered (agent, ~/.ssh/config, -i, default keys) is accepted for "
     "this user. Passwords are never asked for.",
     "Try 'ssh -o BatchMode=yes USER@NAME true'; install your key by ssh-copy-id, name it by -i, or "
     "name the user by -H user@host.",
     "{ssh} -o BatchMode=yes {host} true"},
    {failure::kSshBusy, kExitLauncher, "a host drops new connections",
     "sshd kept closing connections before the login, after several attempts: too many were "
     "unauthenticated at one time (MaxStartups).",
     "Raise MaxStartups in its sshd_config, or lower --fan-out.",
     "{ssh} {host} true"},
    {failure::kSshProtocol, kExitLauncher, "the SSH conversation failed",
     "The connection broke off or no common algorithm was found.",
     "Try 'ssh -v NAME true'; --transport command --rsh ssh uses the system's own client.",
     "{ssh} -v {host} true"},
    {failure::kRemoteShell, kExitLauncher, "the remote shell did not start the agent",
     "The login shell of the account printed something else, ended, or is no POSIX shell that can "
     "start programs (nologin, a forced command, a broken profile).",
     "Try 'ssh NAME true' and look at its output; fix what the profile prints or runs.",
     "{ssh} {host} 'echo ok'"},
    {failure::kNoShell, kExitLauncher, "the account on a host has no login shell",
     "The account's shell is nologin or false, which end at once, so that nothing can be started.",
     "Use another account (-H user@host), or give it a shell: chsh -s /bin/sh USER on that host.",
     "{ssh} {host} 'echo ok'"},
    {failure::kShellTimeout, kExitLauncher, "the login shell of a host does not come to an end",
     "A login script there waits for something, or asks a question that nobody answers.",
     "Look at ~/.bashrc, ~/.profile or config.fish there; what is for terminals belongs behind a test "
     "for one.",
     "{ssh} {host} 'echo ok'"},
    {failure::kCache, kExitLauncher, "no place for the runtime on a host",
     "No directory there was writable, had enough room and could execute programs: the cache "
     "directory, $TMPDIR, /tmp and /dev/shm were tried.",
     "Free some space, or set XDG_CACHE_HOME there; 'horarun cache clean -H NAME' removes old ones.",
     "{ssh} {host} 'df -h ~ /tmp /dev/shm'"},
    {failure::kDiskFull, kExitLauncher, "the disk of a host is full",
     "The runtime did not fit into any of the cache directory, $TMPDIR, /tmp and /dev/shm.",
     "Free some space there; 'horarun cache clean -H NAME' removes old runtimes.",
     "{ssh} {host} 'df -h ~ /tmp /dev/shm; df -i ~ /tmp'"},
    {failure::kAgent, kExitLauncher, "the agent on a host failed",
     "The process that starts the ranks there did not start or ended too early.",
     "Look at the message for its last words; --verbose shows each step.",
     "horarun doctor -H {host}"},
    {failure::kProtocol, kExitLauncher, "launcher and agent do not understand each other",
     "Bytes on the connection that neither side expects: something else writes to it.",
     "Run again with --verbose; a shell profile that prints in the background can do this."},
    {failure::kCwd, kExitLauncher, "the working directory does not exist on a host",
     "Ranks start in the directory in which horarun was started, or in --wdir; it is not there.",
     "Use a directory that all hosts share, --wdir DIR, or --ship FILE to send a script along.",
     "{ssh} {host} 'ls -ld DIR'"},
    {failure::kShip, kExitLauncher, "a file could not be sent along",
     "A file of --ship cannot be read here or written there.",
     "Check that the file exists and is readable, and that the host has room."},
    {failure::kNetwork, kExitLauncher, "the hosts have no network in common",
     "No address of every host could be reached by the others, or --network-interfaces matches "
     "nothing on a host. The message lists what each host has.",
     "Name the network, such as --network-interfaces 10.0.0.0/8 or eth0; check firewalls between "
     "the hosts.",
     "horarun doctor -H {host}"},
    {failure::kStartTimeout, kExitTimeout, "the start took too long",
     "Not every host was ready within --start-timeout. The message names those that were not.",
     "Raise --start-timeout (or HOROVOD_START_TIMEOUT), or leave the slow hosts out."},
    {failure::kTimeout, kExitTimeout, "the job took longer than --timeout",
     "The time limit of the whole job has passed; all ranks were ended.",
     "Raise --timeout, or find out what the ranks were waiting for."},
    {failure::kStalled, kExitTimeout, "the job stalled and was ended",
     "No rank had written anything for --stall-after, and --on-stall kill was given.",
     "Read the stacks above the message: most ranks wait for the one that stands elsewhere."},
    {failure::kReport, kExitLauncher, "the report could not be written",
     "The file of --report cannot be made, its disk is full, or nobody reads from the pipe that it "
     "is.",
     "Name another file."},
    {failure::kHostLost, kExitLauncher, "a host was lost while ranks ran on it",
     "The connection ended, or nothing was heard for the time of --lease: the host crashed, was "
     "cut off, or its agent was killed. Its ranks end by themselves after the same time.",
     "Look at the host's own log (power, out of memory, network); raise --lease on a slow link.",
     "{ssh} {host} 'uptime; dmesg | tail'"},
    {failure::kRsh, kExitLauncher, "the command of --rsh failed",
     "The command that leads to a host ended before the agent spoke.",
     "Run it by hand: COMMAND HOST true. Its last lines are in the message."},
    {failure::kRendezvous, kExitLauncher, "the rendezvous server could not run",
     "The server by which the ranks meet could not listen on the chosen address.",
     "Choose another network by --network-interfaces; check limits on open files."},
    {failure::kOutput, kExitLauncher, "the ranks' output could not be written",
     "Standard output refused bytes: its disk is full or its device is gone. Rather than lose "
     "output the job was ended.",
     "Make room, or send the output elsewhere."},
    {failure::kUnfit, kExitLauncher, "--check-hosts found errors",
     "The examination of the hosts found something that keeps a job from running; nothing was started.",
     "Mend what the report names; without --check-hosts the job is tried all the same.",
     "horarun doctor -H HOSTS"},
    {failure::kPmi, kExitLauncher, "a host cannot serve PMI to its ranks",
     "With --pmi a program beside the ranks of each host serves them PMI; it did not start, or it "
     "ended before them. For PMIx it needs the host's own library, libpmix.so.2.",
     "Install that library there (Debian, Ubuntu: libpmix2), or name its folder in LD_LIBRARY_PATH.",
     "{ssh} {host} 'ldconfig -p | grep libpmix'"},
    {failure::kChaos, kExitLauncher, "a host cannot do what --chaos asks for",
     "To cut two hosts off from each other, the first of them must let horarun's agent drop packets: "
     "nftables, the rights of root in its network (CAP_NET_ADMIN), and Linux 5.12 or later. No rank "
     "was started.",
     "Log in there as root (-H root@host), name the pair the other way round, or use stop:HOST, which "
     "needs no rights."},
    {failure::kInternal, kExitLauncher, "a mistake in horarun",
     "Something happened that its authors held impossible.",
     "Report it, with the output of --verbose."},
    {failure::kDiscovery, kExitLauncher, "the hosts of an elastic job cannot be discovered",
     "The script of --host-discovery-script failed, took too long or printed something that is no "
     "host, before it had told any.",
     "Run it by hand: it prints one 'host' or 'host:slots' per line and ends with 0."},
    {failure::kElasticTimeout, kExitTimeout, "an elastic job waited too long for hosts or ranks",
     "There were fewer ranks than -np or --min-np asks for during --elastic-timeout, or a rank did "
     "not come to a new epoch in that time.",
     "See which hosts failed and why; add hosts, lower --min-np, or give more time."},
    {failure::kElasticHosts, kExitLauncher, "too few hosts are left for an elastic job",
     "Hosts that are given by -H or a hostfile have failed, and no others can come.",
     "Give more hosts, a lower --min-np, a --blacklist-cooldown-range, or a discovery script."},
    {failure::kElasticState, kExitLauncher, "no rank of an elastic job is left that knows the state",
     "All ranks that had taken part in the training ended or were lost, so that there is nobody to "
     "learn its state from.",
     "Save checkpoints to disk and start again from the last one."},
    {failure::kResetLimit, kExitLauncher, "an elastic job had to begin a new epoch too often",
     "Ranks or hosts failed, came or went more often than --reset-limit allows.",
     "See why ranks fail; raise the limit when hosts are expected to come and go."},
    {failure::kProgramNotFound, kExitNotFound, "the program does not exist on a host",
     "No file of this name is in the PATH of the ranks there, or at the path given.",
     "Install it there, send it along by --ship, or name it by a path that all hosts share.",
     "{ssh} {host} 'command -v PROGRAM; echo $PATH'"},
    {failure::kInterpreter, kExitNotFound, "the program's interpreter does not exist on a host",
     "The script's first line (#!) or the executable names an interpreter or loader that is not there.",
     "Install it there, or start the script by its interpreter: horarun ... python script.py.",
     "{ssh} {host} 'head -1 PROGRAM'"},
    {failure::kNotExecutable, kExitCannotExecute, "the program cannot be executed on a host",
     "The file is there and lacks the permission, is on a file system mounted noexec, or is for "
     "another kind of machine.",
     "chmod +x it; check the mount options and 'file PROGRAM' there.",
     "{ssh} {host} 'ls -l PROGRAM; file PROGRAM'"},
    {failure::kNoProcess, kExitCannotExecute, "a host has no room for a rank's process",
     "The kernel refused another process, session or descriptor: a limit of the user, of the cgroup "
     "or of the machine is reached.",
     "Look there at ulimit -u, at pids.max and memory.max of the user's cgroup, and at the free memory.",
     "{ssh} {host} 'ulimit -u; free -m; cat /proc/self/cgroup'"},
    {failure::kOutOfMemory, kExitSignalBase + 9, "the kernel killed a rank for lack of memory",
     "The host, or the memory limit of the rank's cgroup, was exhausted, and the kernel ended a "
     "process (SIGKILL).",
     "Start fewer ranks there, use smaller batches, or raise the limit; the report shows each rank's "
     "peak memory.",
     "{ssh} {host} 'dmesg | grep -i oom'"},
};
// clang-format on

}  // namespace

std::span<const FailureClass> failure_classes() { return kClasses; }

}  // namespace hora::launcher
