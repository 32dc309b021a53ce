// SPDX-License-Identifier: Apache-2.0
// PMI-1 is a protocol of lines, "cmd=NAME key=value ...". This class answers them and does no I/O.
#include "apps/pmi/pmi1_protocol.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "launcher/protocol/exit_code.h"

namespace hora::pmi {

namespace {

constexpr int kMostKey = 64;
constexpr int kMostValue = 1024;

// Returns the value of "name=..." in a line. With `to_end`, the value may contain blanks and ends
// with the line.
std::string word(std::string_view line, std::string_view name, bool to_end = false) {
  std::size_t at = 0;
  while (at < line.size()) {
    const std::size_t end = std::min(line.find(' ', at), line.size());
    const std::string_view each = line.substr(at, end - at);
    if (each.size() > name.size() && each.substr(0, name.size()) == name &&
        each[name.size()] == '=') {
      const std::size_t begin = at + name.size() + 1;
      return std::string(line.substr(begin, (to_end ? line.size() : end) - begin));
    }
    at = end + 1;
  }
  return {};
}

}  // namespace

// MPICH's format for the placement: blocks of (first host, number of hosts, ranks on each). It
// shows which ranks share memory.
std::string process_mapping(const std::vector<launcher::PmiHost>& hosts) {
  std::vector<std::pair<int, int>> places;  // rank, host
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    for (const int rank : hosts[host].ranks) places.emplace_back(rank, static_cast<int>(host));
  }
  std::sort(places.begin(), places.end());
  struct Block {
    int first_host, hosts, ranks;
  };
  // Runs of neighbouring ranks on one host.
  std::vector<Block> runs;
  for (const auto& [rank, host] : places) {
    if (!runs.empty() && runs.back().first_host == host) {
      ++runs.back().ranks;
    } else {
      runs.push_back({host, 1, 1});
    }
  }
  // Blocks of hosts that follow each other and have equally many ranks.
  std::vector<Block> blocks;
  for (const Block& run : runs) {
    if (!blocks.empty() && blocks.back().ranks == run.ranks &&
        blocks.back().first_host + blocks.back().hosts == run.first_host) {
      ++blocks.back().hosts;
    } else {
      blocks.push_back(run);
    }
  }
  std::string text = "(vector";
  for (const Block& block : blocks) {
    text += ",(" + std::to_string(block.first_host) + "," + std::to_string(block.hosts) + "," +
            std::to_string(block.ranks) + ")";
  }
  return text + ")";
}

std::optional<int> abort_code(std::string_view line) {
  if (word(line, "cmd") != "abort") return std::nullopt;
  // The code that a process would exit with; an abort is never a success.
  const int code = std::atoi(word(line, "exitcode").c_str()) & 0xFF;
  if (code == 0) return launcher::kExitFailed;
  return code;
}

Pmi1Protocol::Pmi1Protocol(const launcher::PmiJob& job)
    : job_(job),
      space_("hora_" + job.job_id),
      ranks_here_(
          static_cast<int>(job.hosts[static_cast<std::size_t>(job.own_host)].ranks.size())) {
  for (const launcher::PmiHost& host : job.hosts) size_ += static_cast<int>(host.ranks.size());
  const std::string mapping = process_mapping(job.hosts);
  // A mapping that is too long is left out; MPICH then finds the placement by itself.
  if (mapping.size() < kMostValue) values_["PMI_process_mapping"] = mapping;
}

std::string Pmi1Protocol::handle(int rank, std::string_view line) {
  // A spawn request spans several lines, from "mcmd=" to "endcmd".
  if (in_long_command_[rank]) {
    if (line != "endcmd") return {};
    in_long_command_[rank] = false;
    return "cmd=spawn_result rc=-1 msg=not_supported\n";
  }
  if (line.substr(0, 5) == "mcmd=") {
    in_long_command_[rank] = true;
    return {};
  }
  const std::string command = word(line, "cmd");
  if (command == "init") {
    const bool known = word(line, "pmi_version") == "1";
    return std::string("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=") +
           (known ? "0\n" : "-1\n");
  }
  if (command == "get_maxes") {
    return "cmd=maxes kvsname_max=256 keylen_max=" + std::to_string(kMostKey) +
           " vallen_max=" + std::to_string(kMostValue) + "\n";
  }
  if (command == "get_appnum") {
    return "cmd=appnum appnum=" + std::to_string(launcher::program_number(job_, rank)) + "\n";
  }
  if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=" + space_ + "\n";
  if (command == "get_universe_size") {
    return "cmd=universe_size size=" + std::to_string(size_) + "\n";
  }
  // No answer yet: end_barrier() sends it to all ranks.
  if (command == "barrier_in") {
    ++waiting_;
    return {};
  }
  if (command == "put") {
    const std::string key = word(line, "key");
    const std::string value = word(line, "value", true);
    // Each key can be put only once, as the protocol demands.
    if (key.empty() || !values_.emplace(key, value).second) {
      return "cmd=put_result rc=-1 msg=duplicate_key_" + key + "\n";
    }
    updates_.emplace_back(key, value);
    return "cmd=put_result rc=0 msg=success\n";
  }
  if (command == "get") {
    const std::string key = word(line, "key");
    const auto found = values_.find(key);
    if (found == values_.end()) {
      return "cmd=get_result rc=-1 msg=key_" + key + "_not_found value=unknown\n";
    }
    return "cmd=get_result rc=0 msg=success value=" + found->second + "\n";
  }
  if (command == "finalize") return "cmd=finalize_ack\n";
  if (command == "abort") return {};
  // These commands need a name server.
  return "cmd=" + command + "_result rc=-1 msg=not_supported\n";
}

// Only keys of this host since the last barrier.
std::string Pmi1Protocol::take_updates() {
  std::string text;
  for (const auto& [key, value] : std::exchange(updates_, {})) text += key + "=" + value + "\n";
  return text;
}

// The text comes from another host, so its form is checked.
bool Pmi1Protocol::add_updates(std::string_view updates) {
  while (!updates.empty()) {
    const std::size_t end = updates.find('\n');
    const std::size_t equals = updates.find('=');
    if (end == std::string_view::npos || equals > end) return false;
    values_[std::string(updates.substr(0, equals))] = updates.substr(equals + 1, end - equals - 1);
    updates.remove_prefix(end + 1);
  }
  return true;
}

std::string Pmi1Protocol::end_barrier() {
  waiting_ = 0;
  return "cmd=barrier_out\n";
}

}  // namespace hora::pmi
