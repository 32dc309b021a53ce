// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/host_capacity.h"

#include "tests/support/catch.h"

using namespace hora::launcher;

TEST_CASE("host room: the first limit that is too low is named") {
  const HostRoom room{{{32'768, "sysctl kernel.pid_max"}, {500, "ulimit -u"}}, 0};
  CHECK_FALSE(find_lack(499, room));
  const auto lack = find_lack(500, room);  // the agent is a process, too
  REQUIRE(lack);
  CHECK(lack->message == "500 ranks need as many processes, and the limit is 500 (ulimit -u)");
  CHECK(find_lack(40'000, room)->message.find("32768 (sysctl kernel.pid_max)") !=
        std::string::npos);
}

TEST_CASE("host room: no process is without memory") {
  const HostRoom room{{}, std::int64_t{256} << 20};
  CHECK_FALSE(find_lack(4'096, room));
  const auto lack = find_lack(8'192, room);
  REQUIRE(lack);
  CHECK(lack->message == "8192 ranks need 512 MiB of memory at least, and the host has 256 MiB");
  CHECK_FALSE(find_lack(8'192, HostRoom{}));
}

TEST_CASE("host room: memory is what the kernel counts, with swap") {
  CHECK(memory_of("MemTotal:       24676 kB\nMemFree: 1 kB\nSwapTotal:       100 kB\n") ==
        24'776 * 1024);
  CHECK(memory_of("MemTotal: much\n") == 0);
  CHECK(memory_of("") == 0);
}

TEST_CASE("host room: this host can run a job") {
  const HostRoom room = read_host_room();
  CHECK(room.memory_bytes > 0);
  CHECK_FALSE(room.limits.empty());
  CHECK_FALSE(find_lack(2, room));
}
