// SPDX-License-Identifier: Apache-2.0
// Which hosts a job may use: the -H list, a hostfile, or nothing.  [pure]
//
// Grammar (docs/reference/hosts.md): items separated by commas (-H) or lines (hostfile);
//   item  := [user@] name [":" slots]         name := DNS name | IPv4 | "[" IPv6 "]" | range
//          | "ssh://" [user@] name [":" port [":" slots]]
//   range := prefix "[" 01-64,70 "]" suffix
// A hostfile line also takes "slots=N", "max_slots=N", "port=N".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

struct Host {
  std::string name;              // as the user wrote it, without user, brackets and slots
  std::string user;              // empty: the transport's default
  std::optional<int> slots;      // unset: the user named none (one, or --slots-per-host)
  std::vector<int> gpus = {};    // that --include and --exclude leave to the job; empty: all
  std::optional<int> port = {};  // of its SSH server; unset: that of -p or the configuration
  friend bool operator==(const Host&, const Host&) = default;
};

// Limits that turn a slip of the finger into a message instead of gigabytes.
inline constexpr int kMaxSlotsPerHost = 65'536;
inline constexpr int kMaxHosts = 200'000;

// Parses the argument of -H. `origin` names the source in errors ("-H", "HORA_HOSTS").
// A host that is listed twice is one host whose slots add up; its place is the first one.
// Every rejected spec says where (column) and what was expected.
Result<std::vector<Host>> parse_host_list(std::string_view text, std::string_view origin);

// Parses the text of a hostfile; errors say `path:line:column`.
Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view path);

// Adds the hosts of another file to those that are known, as if one file listed all of them. An
// error names `origin`.
Status add_hosts(std::vector<Host>& known, std::vector<Host> more, std::string_view origin);

// One line of a hostfile, with the comment and the attributes that it may have; "none" is not a
// host.
Result<std::vector<Host>> parse_hostfile_line(std::string_view line, std::string_view origin);

// "user@[::1]:4", "ssh://a:2222:4": what parse_host_list reads back as the same value.
std::string format_host(const Host& host);
std::string format_host(Host host, std::optional<int> slots);
std::string format_host_list(const std::vector<Host>& hosts);

}  // namespace hora::launcher
