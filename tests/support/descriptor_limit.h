// SPDX-License-Identifier: Apache-2.0
// How many descriptors this process, and what it starts, may have, until it goes out of scope.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

namespace hora::test {

class DescriptorLimit {
 public:
  // Numbers below `soft` can be opened.
  explicit DescriptorLimit(rlim_t soft, rlim_t hard = RLIM_INFINITY) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlim_t most = std::min(hard, before_.rlim_max);
    const rlimit limit{std::min(soft, most), most};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit before_{};
};

// The number of what is opened next: as a limit, nothing more can be opened.
inline rlim_t next_descriptor() {
  const os::Fd next(::fcntl(0, F_DUPFD_CLOEXEC, 0));
  REQUIRE(next.valid());
  return static_cast<rlim_t>(next.get());
}

}  // namespace hora::test
