// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/remote_command.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "launcher/failures/failure_code.h"
#include "launcher/process/env_words.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Every shell takes these literally, anywhere in a word. '=' is missing (zsh expands a leading one,
// fish and csh assign), and so are '~', '^', '%' and '{'.
bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c != '\0' && std::strchr("_-./,:+@", c) != nullptr);
}

Error not_an_argument(std::string_view what) {
  return make_error(ErrorCode::kUsage,
                    "an argument with " + std::string(what) + " cannot be passed to a shell");
}

// Puts `word` in single quotes. A character that some shell interprets even there gets a backslash
// between two quoted pieces: csh expands '!' (history), fish reads '\'.
std::string single_quoted(std::string_view word) {
  const auto outside = [](char c) { return c == '\'' || c == '\\' || c == '!'; };
  std::string out;
  out.reserve(word.size() + 2);
  bool open = false;
  for (char c : word) {
    if (outside(c) == open) {
      out += '\'';
      open = !open;
    }
    if (!open) out += '\\';
    out += c;
  }
  if (open || out.empty()) out += open ? "'" : "''";
  return out;
}

}  // namespace

// No quoting works for line breaks in csh, so they are refused rather than passed on wrongly.
Result<std::string> quote_for_any_shell(std::string_view word) {
  if (word.find('\0') != std::string_view::npos) return not_an_argument("a NUL byte");
  if (word.find_first_of("\n\r") != std::string_view::npos) {
    return not_an_argument("a line feed or carriage return");
  }
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), is_plain);
  return plain ? std::string(word) : single_quoted(word);
}

namespace {

enum class Kind { kShell, kArgv, kArgvAfterDashes };

std::string_view name_of_program(const std::vector<std::string>& command) {
  const std::string_view program = command.front();
  return program.substr(program.rfind('/') + 1);
}

// Only the `exec` subcommand of these programs takes an argv. A wrapper around ssh with another
// name counts as a shell.
Kind kind_of(const std::vector<std::string>& command) {
  const std::string_view name = name_of_program(command);
  const bool runs_argv = std::find(command.begin(), command.end(), "exec") != command.end();
  if (!runs_argv) return Kind::kShell;
  const auto is_one_of = [name](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (is_one_of({"kubectl", "oc", "lxc", "incus"})) return Kind::kArgvAfterDashes;
  return is_one_of({"docker", "podman", "nerdctl", "crictl", "crun", "runc"}) ? Kind::kArgv
                                                                              : Kind::kShell;
}

struct Placeholders {
  bool host = false;
  bool user = false;
  bool port = false;
  bool command = false;
};

// Replaces the placeholders of one word in a single pass: those in a host name stay as they are.
std::string fill(const std::string& word, const Host& host, const std::string& line,
                 Placeholders& seen) {
  const std::string target = host.user.empty() ? host.name : host.user + "@" + host.name;
  const std::string port = host.port ? std::to_string(*host.port) : "22";
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
        take("{user}", host.user, seen.user) || take("{port}", port, seen.port) ||
        take("{command}", line, seen.command)) {
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

// Container engines take an argv and run no shell, so they get `sh -c` in front of the line.
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
  Placeholders seen;
  std::vector<std::string> argv;
  // An empty {user} would build words such as "@host", which fail with a misleading error.
  for (const std::string& word : command) {
    if (host.user.empty() && word.find("{user}") != std::string::npos) {
      return make_error(ErrorCode::kUsage,
                        "--rsh uses {user}, but host " + host.name + " is listed without one");
    }
    argv.push_back(fill(word, host, line, seen));
  }
  if (host.port && !seen.port) {
    if (name_of_program(command) != "ssh") {
      return make_error(ErrorCode::kUsage, command.front() + " takes no port: host " + host.name +
                                               ":" + std::to_string(*host.port) +
                                               " (use {port} in --rsh)");
    }
    // Of two ports ssh takes the first one.
    argv.insert(argv.begin() + 1, {"-p", std::to_string(*host.port)});
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

std::string rsh_program(const std::vector<std::string>& command) {
  return without_env(command).argv.front();
}

namespace {

struct Sentence {
  std::string_view words, failure_class;
};

// Of OpenSSH, in English in every locale. The first match counts: the sentence about a changed key
// is followed by the one about an unknown key.
constexpr Sentence kSshSentences[] = {
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", failure::kHostKeyChanged},
    {"REVOKED HOST KEY DETECTED", failure::kHostKeyChanged},
    {" revoked by file ", failure::kHostKeyChanged},
    {"Host key verification failed", failure::kHostKeyUnknown},
    {"Too many authentication failures", failure::kSshAuth},
    {"Permission denied (", failure::kSshAuth},
    {"Could not resolve hostname", failure::kResolve},
    {"Connection refused", failure::kRefused},
    {"Connection timed out", failure::kConnectTimeout},
    {"No route to host", failure::kConnect},
    {"Not allowed at this time", failure::kSshBusy},
    {"Exceeded MaxStartups", failure::kSshBusy},
    {"Unable to negotiate", failure::kSshProtocol},
};

}  // namespace

// The same classes as for hosts that libssh cannot reach.
std::string_view class_of_ssh_words(std::string_view printed) {
  for (const Sentence& each : kSshSentences) {
    if (printed.find(each.words) != std::string_view::npos) return each.failure_class;
  }
  return {};
}

// The end of a text explains a failure better than its beginning.
std::string last_words(std::string_view all) {
  constexpr std::size_t kEnough = 600;
  // On one line. ssh ends each of its own with a carriage return as well.
  std::string line;
  for (const char c : trim(all)) {
    if (c == '\n') line += " | ";
    if (c != '\n' && c != '\r') line += c;
  }
  std::string_view text = line;
  if (text.size() > kEnough) text.remove_prefix(text.size() - kEnough);
  return quote(text, 2 * kEnough);
}

// nologin prints "This account is currently not available." and false prints nothing; both exit
// with status 1.
bool means_no_shell(const RemoteEnd& end, std::string_view printed) {
  return end.exit_status == 1 &&
         (trim(printed).empty() || printed.find("not available") != std::string_view::npos);
}

std::string describe(const RemoteEnd& end) {
  if (!end.link_error.empty()) return end.link_error;
  if (!end.signal.empty()) return "it was killed by signal " + end.signal;
  if (end.exit_status) return "it exited with status " + std::to_string(*end.exit_status);
  return "the connection closed";
}

}  // namespace hora::launcher
