// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/remote_end.h"

#include "launcher/failures/failure_code.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

struct Sentence {
  std::string_view words, failure_class;
};

// Of OpenSSH, which are in English everywhere. The first one counts: what is said of a changed key
// is followed by the sentence about an unknown one.
constexpr Sentence kSshSentences[] = {
    {"REMOTE HOST IDENTIFICATION HAS CHANGED", failure::kHostKeyChanged},
    {"REVOKED HOST KEY DETECTED", failure::kHostKeyChanged},
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

// `horarun explain` and the summary of a start go by the class, so a host that the ssh program
// cannot reach has the same one as a host that libssh cannot reach.
std::string_view class_of_ssh_words(std::string_view said) {
  for (const Sentence& each : kSshSentences) {
    if (said.find(each.words) != std::string_view::npos) return each.failure_class;
  }
  return {};
}

// The end of a text says more about a failure than its beginning.
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
// with
// 1. These are the words of other programs, so this is the one place that reads them.
bool means_no_shell(const RemoteEnd& end, std::string_view said) {
  return end.exit_status == 1 &&
         (trim(said).empty() || said.find("not available") != std::string_view::npos);
}

std::string describe(const RemoteEnd& end) {
  if (!end.link_error.empty()) return end.link_error;
  if (!end.signal.empty()) return "it was killed by signal " + end.signal;
  if (end.exit_status) return "it exited with status " + std::to_string(*end.exit_status);
  return "the connection closed";
}

}  // namespace hora::launcher
