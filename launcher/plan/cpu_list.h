// SPDX-License-Identifier: Apache-2.0
// Lists of CPUs as people and the kernel write them: "0-3,8".  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// No machine has more. Bounds what a slip of the finger costs.
inline constexpr int kMostCpus = 8192;

// Numbers and ranges separated by commas, in the order given. `at` is where the list begins in
// `text`, of which the error shows the place.
Result<std::vector<int>> parse_cpu_list(std::string_view list, std::string_view origin,
                                        std::string_view text, std::size_t at = 0);

// The value of --bind cpu-list:LIST[:LIST...], without its first word.
Result<std::vector<std::vector<int>>> parse_cpu_lists(std::string_view text,
                                                      std::string_view origin);

// "0-3,8": sorted, each CPU once.
std::string format_cpu_list(std::vector<int> cpus);

}  // namespace hora::launcher
