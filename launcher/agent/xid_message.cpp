// SPDX-License-Identifier: Apache-2.0
// Parses "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.". The
// driver's versions differ in the middle part, and any user can write to the kernel's log, so every
// field is bounded and checked.
#include "launcher/agent/xid_message.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kLongestDevice = 64;
constexpr std::size_t kLongestText = 300;

bool takes(std::string_view& rest, std::string_view word) {
  if (rest.substr(0, word.size()) != word) return false;
  rest.remove_prefix(word.size());
  return true;
}

// Accepts "0000:3b:00", with the name of a part of the device after a blank.
bool is_device(std::string_view name) {
  if (name.empty() || name.size() > kLongestDevice) return false;
  const std::string_view address = name.substr(0, name.find(' '));
  return std::count(address.begin(), address.end(), ':') == 2 &&
         address.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Takes everything up to the next comma, and the comma.
std::string_view item(std::string_view& rest) {
  const std::size_t comma = std::min(rest.find(','), rest.size());
  const std::string_view found = trim(rest.substr(0, comma));
  rest.remove_prefix(std::min(comma + 1, rest.size()));
  rest = trim(rest);
  return found;
}

// The driver prints '<unknown>' where it cannot identify the process.
std::string known(std::string_view word) {
  if (word.size() >= 2 && word.front() == '\'' && word.back() == '\'') {
    word = word.substr(1, word.size() - 2);
  }
  return word == "<unknown>" ? std::string() : std::string(word);
}

}  // namespace

std::optional<XidMessage> parse_xid(std::string_view line) {
  constexpr std::string_view kBegin = "NVRM: Xid (";
  const std::size_t begin = line.find(kBegin);
  if (begin == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(begin + kBegin.size());
  // Drivers from before 2013 print the address alone.
  takes(rest, "PCI:");
  const std::size_t close = rest.find(')');
  if (close == std::string_view::npos || !is_device(rest.substr(0, close))) return std::nullopt;
  XidMessage message;
  message.device = rest.substr(0, close);
  rest.remove_prefix(close + 1);
  if (!takes(rest, ":")) return std::nullopt;
  rest = trim(rest);
  const auto code = parse_int<int>(item(rest));
  if (!code || *code < 0 || *code > 9'999) return std::nullopt;
  message.code = *code;
  if (takes(rest, "pid=")) {
    message.pid = parse_int<std::int64_t>(known(item(rest))).value_or(0);
    if (message.pid < 0) message.pid = 0;
  }
  if (takes(rest, "name=")) message.program = known(item(rest)).substr(0, kLongestDevice);
  message.text = rest.substr(0, kLongestText);
  return message;
}

}  // namespace hora::launcher
