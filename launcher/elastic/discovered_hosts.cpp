// SPDX-License-Identifier: Apache-2.0
// A duplicate with different slots is an error, because either line could be the outdated one.
#include "launcher/elastic/discovered_hosts.h"

#include <algorithm>
#include <string>

#include "rendezvous/base/text.h"

namespace hora::launcher::elastic {

namespace {

// As in a hostfile, or as -H takes them. What is neither is told as the one that it looks like.
Result<std::vector<Host>> parse_line(std::string_view line, const std::string& place) {
  auto named = parse_hostfile_line(line, place);
  if (named || line.find(',') == std::string_view::npos) return named;
  return parse_host_list(line, place);
}

}  // namespace

Result<std::vector<Host>> parse_discovered_hosts(std::string_view output, int default_slots) {
  // A byte order mark, as before a hostfile.
  if (output.starts_with("\xEF\xBB\xBF")) output.remove_prefix(3);
  std::vector<Host> hosts;
  std::size_t number = 0;
  for (std::string_view line : split(output, '\n')) {
    ++number;
    // '#' begins a comment.
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string place = "line " + std::to_string(number);
    auto named = parse_line(line, place);
    if (!named) return std::move(named).error();
    for (Host& host : *named) {
      // Horovod's scripts may leave the slots out; --slots-per-host fills them in.
      if (!host.slots) host.slots = default_slots;
      const auto known = std::find_if(hosts.begin(), hosts.end(), [&host](const Host& other) {
        return other.name == host.name;
      });
      if (known == hosts.end() && hosts.size() == kMostDiscovered) {
        return make_error(ErrorCode::kUsage,
                          place + ": more than " + std::to_string(kMostDiscovered) + " hosts");
      }
      if (known == hosts.end()) {
        hosts.push_back(std::move(host));
      } else if (*known != host) {
        return make_error(ErrorCode::kUsage, place + ": host " + host.name + " was listed as " +
                                                 quote(format_host(*known)) + " before, now as " +
                                                 quote(format_host(host)) +
                                                 "; expected each host once");
      }
    }
  }
  return hosts;
}

}  // namespace hora::launcher::elastic
