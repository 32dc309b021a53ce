// SPDX-License-Identifier: Apache-2.0
// Connections that a rank awaits from ranks which have its key: they have got it over the control
// connections, which are authenticated. A connection begins with the key and the number of the one
// that comes, and needs no answer.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

// os::random_token() makes keys of this length.
inline constexpr std::size_t kKeyBytes = 32;

Status greet(int socket, std::string_view key, int number, Deadline deadline);

struct KeyedGathering {
  int listener = -1;  // non-blocking
  std::string key;
  std::set<int> awaited;  // numbers
  Deadline deadline;
  // Asked now and then: the wait ends with kInterrupted.
  std::function<bool()> broken_off = [] { return false; };
  // Whether a connection is admitted at all.
  std::function<bool(int socket)> admits = [](int) { return true; };

  // The sockets by number, all of them. Nothing after the greeting has been read.
  Result<std::map<int, os::Fd>> run();
};

}  // namespace hora::collectives
