// SPDX-License-Identifier: Apache-2.0
// How many processes this host can have at all. A job with more ranks than that is refused before
// its first rank starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

struct ProcessLimit {
  std::int64_t most = 0;
  std::string name;  // of the setting: "ulimit -u", "kernel.pid_max"
};

struct HostRoom {
  std::vector<ProcessLimit> limits;
  std::int64_t memory_bytes = 0;  // with swap; 0: unknown
};

// Only what holds for every process: what is in use now may be free in a moment.
HostRoom read_host_room();

struct Lack {
  std::string message;
  std::string advice;
};
// What a host with this room lacks for so many ranks; nothing: it may do.  [pure]
std::optional<Lack> find_lack(std::size_t ranks, const HostRoom& room);

// MemTotal and SwapTotal of the text of /proc/meminfo; 0: it does not tell.  [pure]
std::int64_t memory_of(std::string_view meminfo);

}  // namespace hora::launcher
