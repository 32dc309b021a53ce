// SPDX-License-Identifier: Apache-2.0
// The order of a list is kept, because the ranks of a host share it in that order: 8,0-3 gives the
// first of two ranks 8 and 0. Duplicates are errors; two ranks on one CPU can be had with two
// lists.
#include "launcher/plan/cpu_list.h"

#include <algorithm>

#include "launcher/text/spec_location.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

Result<std::vector<int>> parse_cpu_list(std::string_view list, std::string_view origin,
                                        std::string_view text, std::size_t at) {
  std::vector<int> cpus;
  for (const std::string_view item : split(list, ',')) {
    const auto wrong = [&](const std::string& message) {
      return spec_error({origin, text, 0}, at, message);
    };
    const std::size_t dash = item.find('-');
    const auto first = parse_int<int>(item.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_int<int>(item.substr(dash + 1));
    // An empty item is an error, too: "0-3," is more likely cut short than meant.
    if (!first || !last || *first < 0) {
      return wrong("expected CPUs such as 0-3,8, found " + quote(item));
    }
    if (*last < *first) return wrong("the range " + quote(item) + " ends before it begins");
    if (*last >= kMostCpus) {
      return wrong("CPU " + std::to_string(*last) + " is too large; at most " +
                   std::to_string(kMostCpus - 1));
    }
    for (int cpu = *first; cpu <= *last; ++cpu) {
      if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) {
        return wrong("CPU " + std::to_string(cpu) + " is listed twice");
      }
      cpus.push_back(cpu);
    }
    at += item.size() + 1;
  }
  return cpus;
}

Result<std::vector<std::vector<int>>> parse_cpu_lists(std::string_view text,
                                                      std::string_view origin) {
  std::vector<std::vector<int>> lists;
  std::size_t at = 0;
  // Lists may overlap: who writes one for each rank has thought of each rank.
  for (const std::string_view list : split(text, ':')) {
    auto cpus = parse_cpu_list(list, origin, text, at);
    if (!cpus) return std::move(cpus).error();
    lists.push_back(std::move(*cpus));
    at += list.size() + 1;
  }
  return lists;
}

// As the kernel writes Cpus_allowed_list, so that people can compare the two.
std::string format_cpu_list(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  std::string out;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) ++end;
    if (!out.empty()) out += ',';
    out += std::to_string(cpus[i]);
    if (end > i) out += "-" + std::to_string(cpus[end]);
    i = end + 1;
  }
  return out;
}

}  // namespace hora::launcher
