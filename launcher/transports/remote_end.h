// SPDX-License-Identifier: Apache-2.0
// How a command on a host ended, in words.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hora::launcher {

// How the remote command ended, as far as it is known.
struct RemoteEnd {
  std::optional<int> exit_status;
  std::string signal;      // "SEGV"; empty: none
  std::string link_error;  // the connection broke: why; empty: it did not
};

std::string describe(const RemoteEnd& end);

// The failure class of what an ssh program said when it could not get into a host; empty: unknown.
std::string_view class_of_ssh_words(std::string_view said);
// Whether the account's login shell refuses every command, given what it `said`.
bool means_no_shell(const RemoteEnd& end, std::string_view said);
// The last of what a shell or an agent said, quoted for an error message.
std::string last_words(std::string_view text);

}  // namespace hora::launcher
