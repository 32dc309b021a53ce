// SPDX-License-Identifier: Apache-2.0
// Builds the argv of an --rsh command. ssh-like clients pass one string to a remote shell;
// container engines take an argv and run no shell, so they get `sh -c` in front of the line.
#include "launcher/transports/rsh_argv.h"

#include <algorithm>
#include <string_view>

namespace hora::launcher {

namespace {

enum class Kind { kShell, kArgv, kArgvAfterDashes };

// Only the `exec` subcommand of these programs takes an argv. A wrapper around ssh with another
// name counts as a shell.
Kind kind_of(const std::vector<std::string>& command) {
  const std::string& program = command.front();
  const std::string_view name = std::string_view(program).substr(program.rfind('/') + 1);
  const bool runs_argv = std::find(command.begin(), command.end(), "exec") != command.end();
  if (!runs_argv) return Kind::kShell;
  if (name == "kubectl" || name == "oc") return Kind::kArgvAfterDashes;
  for (std::string_view engine : {"docker", "podman", "nerdctl", "crictl"}) {
    if (name == engine) return Kind::kArgv;
  }
  return Kind::kShell;
}

struct Seen {
  bool host = false;
  bool user = false;
  bool command = false;
};

// Replaces the placeholders of one word in a single pass, so that a host name cannot smuggle one
// in.
std::string fill(const std::string& word, const Host& host, const std::string& line, Seen& seen) {
  const std::string target = host.user.empty() ? host.name : host.user + "@" + host.name;
  std::string out;
  for (std::size_t at = 0; at < word.size();) {
    const std::string_view rest = std::string_view(word).substr(at);
    const auto take = [&](std::string_view name, const std::string& value, bool& flag) {
      if (rest.substr(0, name.size()) != name) return false;
      out += value;
      at += name.size();
      flag = true;
      return true;
    };
    if (take("{host}", host.name, seen.host) || take("{}", host.name, seen.host) ||
        take("{user}", host.user, seen.user) || take("{command}", line, seen.command)) {
      continue;
    }
    if (take("{target}", target, seen.host)) {
      seen.user = true;
      continue;
    }
    out += word[at++];
  }
  return out;
}

}  // namespace

Result<std::vector<std::string>> rsh_argv(const std::vector<std::string>& command, const Host& host,
                                          const std::string& line) {
  if (command.empty() || command.front().empty()) {
    return make_error(ErrorCode::kUsage, "--rsh names no command");
  }
  // "-oProxyCommand=..." as a host name would make ssh run it.
  if (host.name.empty() || host.name.front() == '-' || host.user.substr(0, 1) == "-") {
    return make_error(ErrorCode::kUsage, "a host that --rsh would treat as an option: '" +
                                             host.user + "@" + host.name + "'");
  }
  const Kind kind = kind_of(command);
  Seen seen;
  std::vector<std::string> argv;
  // An empty {user} would build words such as "@host", which fail with a misleading error.
  for (const std::string& word : command) {
    if (host.user.empty() && word.find("{user}") != std::string::npos) {
      return make_error(ErrorCode::kUsage,
                        "--rsh uses {user}, but host " + host.name + " is listed without one");
    }
    argv.push_back(fill(word, host, line, seen));
  }
  // Without a placeholder the host goes at the end, as with ssh.
  if (!seen.host) {
    if (!host.user.empty() && !seen.user && kind != Kind::kShell) {
      return make_error(ErrorCode::kUsage, command.front() + " takes no user@host: host " +
                                               host.user + "@" + host.name +
                                               " (use {user} and {host} in --rsh)");
    }
    argv.push_back(host.user.empty() || seen.user ? host.name : host.user + "@" + host.name);
  }
  if (seen.command) return argv;
  // kubectl needs "--" before the command; docker would take it for the program's name.
  if (kind == Kind::kArgvAfterDashes) argv.push_back("--");
  if (kind != Kind::kShell) argv.insert(argv.end(), {"sh", "-c"});
  argv.push_back(line);
  return argv;
}

const std::string& rsh_program(const std::vector<std::string>& command) {
  std::size_t at = 0;
  if (command.front() == "env") {
    for (++at; at + 1 < command.size(); ++at) {
      const std::string& word = command[at];
      if (word == "-u") {
        ++at;  // and its name
      } else if (word.find('=') == std::string::npos) {
        break;
      }
    }
  }
  return command[std::min(at, command.size() - 1)];
}

}  // namespace hora::launcher
