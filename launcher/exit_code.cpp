#include "launcher/exit_code.h"

#include <algorithm>
#include <array>

#include "launcher/failure_code.h"
#include "launcher/option_spelling.h"
#include "rendezvous/base/text.h"

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
     "Check the spelling; try 'getent hosts NAME' and 'ssh NAME true'."},
    {failure::kConnect, kExitLauncher, "a host cannot be connected",
     "Nothing listens on the SSH port of the host, or a firewall or a missing route is in the way.",
     "Try 'ssh NAME true'; check the port (-p), that sshd runs there, and the firewall."},
    {failure::kConnectTimeout, kExitLauncher, "a host does not answer",
     "No answer to the connection came within the start timeout: the host is down or a firewall "
     "drops packets.",
     "Check that the host is up; raise --start-timeout if it is only slow."},
    {failure::kHostKeyUnknown, kExitLauncher, "a host's SSH key is not known",
     "The host is in no known_hosts file, so nothing says that it is the host you mean.",
     "Connect once by 'ssh NAME' and compare the fingerprint, or use --accept-new-host-keys."},
    {failure::kHostKeyChanged, kExitLauncher, "a host's SSH key has changed",
     "The key differs from the one in known_hosts: the host was installed anew, its address now "
     "belongs to another one, or somebody is in between.",
     "If you know why, remove the old key by 'ssh-keygen -R NAME' and connect once by ssh."},
    {failure::kSshAuth, kExitLauncher, "a host refused the login",
     "None of the keys that were offered (agent, ~/.ssh/config, -i, default keys) is accepted for "
     "this user. Passwords are never asked for.",
     "Try 'ssh -o BatchMode=yes USER@NAME true'; install your key by ssh-copy-id, name it by -i, or "
     "name the user by -H user@host."},
    {failure::kSshBusy, kExitLauncher, "a host drops new connections",
     "sshd kept closing connections before the login, after several attempts: too many were "
     "unauthenticated at one time (MaxStartups).",
     "Raise MaxStartups in its sshd_config, or lower --fan-out."},
    {failure::kSshProtocol, kExitLauncher, "the SSH conversation failed",
     "The connection broke off or no common algorithm was found.",
     "Try 'ssh -v NAME true'; --transport command --rsh ssh uses the system's own client."},
    {failure::kRemoteShell, kExitLauncher, "the remote shell did not start the agent",
     "The login shell of the account printed something else, ended, or is no POSIX shell that can "
     "start programs (nologin, a forced command, a broken profile).",
     "Try 'ssh NAME true' and look at its output; fix what the profile prints or runs."},
    {failure::kCache, kExitLauncher, "no place for the runtime on a host",
     "No directory there was writable, had enough room and could execute programs: the cache "
     "directory, $TMPDIR, /tmp and /dev/shm were tried.",
     "Free some space, or set XDG_CACHE_HOME there; 'horarun cache clean -H NAME' removes old ones."},
    {failure::kAgent, kExitLauncher, "the agent on a host failed",
     "The process that starts the ranks there did not start or ended too early.",
     "Look at the message for its last words; --verbose shows each step."},
    {failure::kProtocol, kExitLauncher, "launcher and agent do not understand each other",
     "Bytes on the connection that neither side expects: something else writes to it.",
     "Run again with --verbose; a shell profile that prints in the background can do this."},
    {failure::kCwd, kExitLauncher, "the working directory does not exist on a host",
     "Ranks start in the directory in which horarun was started, or in --wdir; it is not there.",
     "Use a directory that all hosts share, --wdir DIR, or --ship FILE to send a script along."},
    {failure::kShip, kExitLauncher, "a file could not be sent along",
     "A file of --ship cannot be read here or written there.",
     "Check that the file exists and is readable, and that the host has room."},
    {failure::kNetwork, kExitLauncher, "the hosts have no network in common",
     "No address of every host could be reached by the others, or --network-interfaces matches "
     "nothing on a host. The message lists what each host has.",
     "Name the network, such as --network-interfaces 10.0.0.0/8 or eth0; check firewalls between "
     "the hosts."},
    {failure::kStartTimeout, kExitTimeout, "the start took too long",
     "Not every host was ready within --start-timeout. The message names those that were not.",
     "Raise --start-timeout (or HOROVOD_START_TIMEOUT), or leave the slow hosts out."},
    {failure::kTimeout, kExitTimeout, "the job took longer than --timeout",
     "The time limit of the whole job has passed; all ranks were ended.",
     "Raise --timeout, or find out what the ranks were waiting for."},
    {failure::kHostLost, kExitLauncher, "a host was lost while ranks ran on it",
     "The connection ended, or nothing was heard for the time of --lease: the host crashed, was "
     "cut off, or its agent was killed. Its ranks end by themselves after the same time.",
     "Look at the host's own log (power, out of memory, network); raise --lease on a slow link."},
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
    {failure::kInternal, kExitLauncher, "a mistake in horarun",
     "Something happened that its authors held impossible.",
     "Report it, with the output of --verbose."},
};
// clang-format on

struct CodeMeaning {
  int code;
  std::string_view meaning;
};
constexpr CodeMeaning kCodes[] = {
    {kExitOk, "every rank succeeded"},
    {kExitUsage, "the command line, or a file that it names, is wrong; nothing was started"},
    {kExitTimeout, "a time limit passed: --start-timeout or --timeout"},
    {kExitLauncher, "horarun itself failed; the message begins with a class such as E_CONNECT"},
    {kExitCannotExecute, "the program exists on the host but cannot be executed"},
    {kExitNotFound, "the program does not exist on the host"},
};

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    if (c == '-') c = '_';
  }
  return out;
}

std::string explain_class(const FailureClass& row) {
  std::string out(row.code);
  out += ": " + std::string(row.title) + " (exit code " + std::to_string(row.exit_code) + ")\n\n";
  out += "Cause: " + std::string(row.cause) + "\n\nFix:   " + std::string(row.fix) + "\n";
  return out;
}

std::string explain_exit_code(int code) {
  const std::string head = "exit code " + std::to_string(code) + ": ";
  for (const CodeMeaning& row : kCodes) {
    if (row.code == code) return head + std::string(row.meaning) + "\n";
  }
  if (code > kExitSignalBase && code <= kExitSignalBase + 64) {
    return head + "the rank that failed first was ended by signal " +
           std::to_string(code - kExitSignalBase) + " ('kill -l " +
           std::to_string(code - kExitSignalBase) + "' names it)\n";
  }
  return head + "the rank that failed first ended with this code; it is the program's own\n";
}

std::string list_all() {
  std::string out = "Exit codes:\n";
  for (const CodeMeaning& row : kCodes) {
    std::string code = std::to_string(row.code);
    code.resize(9, ' ');
    out += "  " + code + std::string(row.meaning) + "\n";
  }
  out += "  128+N    the rank that failed first was ended by signal N\n";
  out += "  other    the rank that failed first ended with this code\n\nClasses of failures:\n";
  for (const FailureClass& row : kClasses) {
    std::string code(row.code);
    code.resize(20, ' ');
    out += "  " + code + std::string(row.title) + "\n";
  }
  return out + "\n'horarun explain CODE' says more about one of them.\n";
}

}  // namespace

std::span<const FailureClass> failure_classes() { return kClasses; }

const FailureClass* find_failure_class(std::string_view code) {
  const auto* found = std::find_if(std::begin(kClasses), std::end(kClasses),
                                   [code](const FailureClass& row) { return row.code == code; });
  return found == std::end(kClasses) ? nullptr : found;
}

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
      "The class stands at the beginning of the message and in the events of `--json`. `horarun "
      "explain "
      "CLASS` prints\nthe same text.\n\n"
      "| class | exit code | cause | what to do |\n|---|---|---|---|\n";
  for (const FailureClass& row : kClasses) {
    out += "| `" + std::string(row.code) + "` | " + std::to_string(row.exit_code) + " | " +
           std::string(row.cause) + " | " + std::string(row.fix) + " |\n";
  }
  return out;
}

Result<std::string> explain(std::string_view code) {
  if (code.empty()) return list_all();
  if (const auto number = parse_int<int>(code); number && *number >= 0 && *number <= 255) {
    return explain_exit_code(*number);
  }
  std::string name = upper_case(code);
  if (name.substr(0, 2) != "E_") name.insert(0, "E_");
  if (const FailureClass* row = find_failure_class(name)) return explain_class(*row);

  std::vector<std::string> known;
  for (const FailureClass& row : kClasses) known.emplace_back(row.code);
  std::string message = "explain: no failure is called " + quote(code);
  const auto close = close_words(name, known);
  message +=
      close.empty() ? "; 'horarun explain' lists all" : "; did you mean " + close.front() + "?";
  return make_error(ErrorCode::kUsage, std::move(message));
}

}  // namespace hora::launcher
