// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/remote_end.h"

#include "rendezvous/base/text.h"

namespace hora::launcher {

// The end of a text tells more about a failure than its beginning.
std::string last_words(std::string_view text) {
  constexpr std::size_t kEnough = 600;
  text = trim(text);
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
