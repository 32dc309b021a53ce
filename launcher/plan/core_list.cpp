// SPDX-License-Identifier: Apache-2.0
// Numbers are logical, as in Open MPI: those of the kernel may have gaps and mix sockets.
#include "launcher/plan/core_list.h"

#include <algorithm>
#include <map>
#include <string>

#include "launcher/plan/cpu_list.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using Cores = std::vector<std::vector<int>>;  // the CPUs of each core

constexpr std::string_view kExpected =
    "expected cores such as 0-3, or cores of a socket such as 1:0,2 or 1:*";

// No machine has more; larger numbers are typos, and would overflow what counts cores.
std::optional<int> number(std::string_view text) {
  const auto value = parse_int<int>(text);
  if (!value || *value < 0 || *value >= kMostCpus) return std::nullopt;
  return value;
}

// "3", "0-3", "*"
std::optional<CoreRange> read_cores(std::string_view text) {
  if (text == "*") return CoreRange{};
  const std::size_t dash = text.find('-');
  const auto first = number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return CoreRange{std::nullopt, *first, last};
}

// By socket, each with its cores, both in the order of the kernel's numbers, which may have gaps.
std::vector<Cores> sockets_of(const std::vector<CpuPlace>& usable) {
  std::map<int, std::map<int, std::vector<int>>> found;
  for (const CpuPlace& place : usable) found[place.package][place.core].push_back(place.cpu);
  std::vector<Cores> sockets;
  for (auto& [package, cores] : found) {
    Cores& socket = sockets.emplace_back();
    for (auto& [core, cpus] : cores) socket.push_back(std::move(cpus));
  }
  return sockets;
}

// Says how many there are: users count from 1, and containers show a part of the machine.
Error not_there(const std::string& what, std::size_t count, const std::string& of) {
  return make_error(ErrorCode::kUsage, what + " is not there; this job may use " +
                                           std::to_string(count) + " " + of + ", from 0");
}

}  // namespace

Result<std::vector<CoreRange>> parse_core_list(std::string_view list, const SpecLine& line,
                                               std::size_t at) {
  std::vector<CoreRange> out;
  for (const std::string_view part : split(list, ';')) {
    // Kept from one item to the next: "0:0,2" are two cores of socket 0.
    std::optional<int> socket;
    for (const std::string_view item : split(part, ',')) {
      const std::size_t colon = item.find(':');
      if (colon != std::string_view::npos) {
        socket = number(item.substr(0, colon));
        if (!socket) return spec_error(line, at, kExpected);
      }
      const std::size_t begin = colon == std::string_view::npos ? 0 : colon + 1;
      auto cores = read_cores(item.substr(begin));
      if (!cores) return spec_error(line, at + begin, kExpected);
      cores->socket = socket;
      out.push_back(*cores);
      at += item.size() + 1;  // with the separator
    }
  }
  return out;
}

Result<std::vector<int>> cpus_of(const std::vector<CoreRange>& cores,
                                 const std::vector<CpuPlace>& usable) {
  const std::vector<Cores> sockets = sockets_of(usable);
  // The cores of all sockets in a row, for lists without a socket.
  Cores all;
  for (const Cores& socket : sockets) all.insert(all.end(), socket.begin(), socket.end());
  std::vector<int> cpus;
  for (const CoreRange& range : cores) {
    const auto socket = static_cast<std::size_t>(range.socket.value_or(0));
    if (socket >= sockets.size()) {
      return not_there("socket " + std::to_string(socket), sockets.size(), "sockets");
    }
    const Cores& from = range.socket ? sockets[socket] : all;
    const auto end = range.last ? static_cast<std::size_t>(*range.last) + 1 : from.size();
    if (end > from.size()) {
      return not_there("core " + std::to_string(end - 1), from.size(),
                       range.socket ? "cores of socket " + std::to_string(socket) : "cores");
    }
    for (auto core = static_cast<std::size_t>(range.first); core < end; ++core) {
      cpus.insert(cpus.end(), from[core].begin(), from[core].end());
    }
  }
  // Ranges may overlap, as in "0-3,2".
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

}  // namespace hora::launcher
