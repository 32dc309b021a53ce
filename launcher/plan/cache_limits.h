// SPDX-License-Identifier: Apache-2.0
// How much of what jobs have left on a host stays there for later ones.  [pure]
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace hora::launcher {

// None: no limit.
struct CacheLimits {
  std::optional<std::chrono::seconds> max_age;  // since the last use
  std::optional<std::uint64_t> max_bytes;       // of one cache directory, all entries together
  friend bool operator==(const CacheLimits&, const CacheLimits&) = default;
};

// A version that was not started for a month is replaced or forgotten; 2 GiB are a hundred of them,
// and a small part of the quotas that homes usually have.
inline constexpr CacheLimits kDefaultCacheLimits{std::chrono::hours(30 * 24),
                                                 std::uint64_t{2} << 30};

}  // namespace hora::launcher
