// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/host_failure.h"

#include <algorithm>

#include "launcher/failures/failure_code.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// Fills in the commands of the failure table, so that users can paste them.

namespace {

// A --rsh command that says itself where host and command belong, such as srun's. The pattern is
// "{ssh} {host} COMMAND"; COMMAND becomes one word, as when an agent is started.
std::string fill_template(const std::string& text, std::string reach) {
  constexpr std::string_view kHost = "{host} ";
  std::string command = text.substr(text.find(kHost) + kHost.size());
  const bool is_word = command.front() == '\'' || command.find(' ') == std::string::npos;
  if (!is_word) command = quote_shell_words({command});
  replace_all(reach, "'{command}'", command);
  replace_all(reach, "{command}", command);
  return reach;
}

constexpr std::string_view kThere = "{ssh} {host} '";

bool is_ssh(const std::string& reach) {
  const std::string program = reach.substr(0, reach.find(' '));
  return program == "ssh" || (program.size() > 4 && program.substr(program.size() - 4) == "/ssh");
}

}  // namespace

// The options with which horarun itself reached the host; without them the command may fail for
// another reason.
std::string reach_words(const JobSpec& spec) {
  if (spec.listen) return {};
  if (!spec.rsh_command.empty()) return quote_shell_words(spec.rsh_command);
  std::vector<std::string> words{"ssh"};
  if (spec.ssh.port) words.insert(words.end(), {"-p", std::to_string(*spec.ssh.port)});
  if (!spec.ssh.identity_file.empty()) words.insert(words.end(), {"-i", spec.ssh.identity_file});
  if (!spec.ssh.config_file.empty()) words.insert(words.end(), {"-F", spec.ssh.config_file});
  return quote_shell_words(words);
}

// Its words stand in quotes there, as a shell on the host gets them.
bool runs_on_host(std::string_view pattern) { return pattern.starts_with(kThere); }

// What follows {host} in other patterns belongs to ssh, as its user has asked.
std::string fill_local_command(std::string_view pattern, const Host& host) {
  if (!runs_on_host(pattern)) return fill_command(pattern, "ssh", host);
  pattern.remove_prefix(kThere.size());
  return std::string(pattern.substr(0, pattern.rfind('\'')));
}

std::string fill_command(std::string_view pattern, const std::string& reach, const Host& host) {
  std::string text(pattern);
  // Only ssh knows these options; another --rsh command would fail on them.
  if (!is_ssh(reach)) {
    for (const std::string_view option : {" -v ", " -o ConnectTimeout=5 ", " -o BatchMode=yes "}) {
      replace_all(text, option, " ");
    }
  }
  bool by_ssh = text.find("{ssh}") != std::string::npos;
  if (by_ssh && reach.find("{command}") != std::string::npos) {
    text = fill_template(text, reach);
    by_ssh = false;
  }
  std::string way = reach;
  // Of two ports ssh takes the first one.
  if (host.port && is_ssh(reach)) {
    way.insert(std::min(way.find(' '), way.size()), " -p " + std::to_string(*host.port));
  }
  replace_all(text, "{ssh}", way);
  // Other commands take no user@host.
  replace_all(text, "{host}", (by_ssh && !host.user.empty() ? host.user + "@" : "") + host.name);
  return text;
}

// Said by two: the transport, when the host's script finds no agent for its processor, and the
// fleet, when an agent that was already there is for another one.

Failure no_build_for(std::string_view machine, std::string_view there_are) {
  const std::string name(machine);
  return {std::string(failure::kProcessor),
          "its processor is " + name + ", and this installation has builds for " +
              std::string(there_are) + " only",
          "add a build for " + name + ": scripts/build release --arch " + name +
              " where Hora is built, then install again; or leave the host out"};
}

std::optional<Failure> why_runtime_does_not_fit(std::string_view c_library,
                                                const std::string& least_glibc) {
  constexpr std::string_view kGlibc = "glibc ";
  if (c_library.empty() || least_glibc.empty()) return std::nullopt;
  std::string has;
  if (c_library.substr(0, kGlibc.size()) == kGlibc) {
    if (compare_versions(c_library.substr(kGlibc.size()), least_glibc) >= 0) return std::nullopt;
    has = c_library;
  } else {
    has = c_library == "none" ? "no glibc" : std::string(c_library) + " and no glibc";
  }
  return Failure{
      std::string(failure::kCLibrary),
      "the host has " + has + ", and the runtime needs glibc " + least_glibc + " or newer",
      "leave the host out, run there in a container image with glibc " + least_glibc +
          " or newer, or give --runtime host if the program does not use the runtime"};
}

}  // namespace hora::launcher
