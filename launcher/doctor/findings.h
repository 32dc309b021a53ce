// SPDX-License-Identifier: Apache-2.0
// What `horarun doctor` has learnt about hosts, and what it finds wrong.  [pure]
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/plan/job_spec.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher::doctor {

// What `horarun doctor` has learnt about hosts, and what it finds wrong.

using Json = nlohmann::ordered_json;

struct HostExamination {
  std::string name;
  int slots = 0;                   // of the host list; 0: none were named
  std::optional<Failure> failure;  // it was not reached, or its agent failed
  std::optional<Hello> hello;
  Json machine, software, leftovers, selftests;  // what hora-doctor printed there; null until then
  std::map<int, Json> peers;              // by index of the other host: its answers to probes
  std::optional<double> clock_offset_ms;  // its clock minus ours
  double clock_error_ms = 0;              // at most so far from the truth
  std::vector<std::string> unanswered;    // what it did not answer in time
};

struct Examination {
  std::vector<HostExamination> hosts;
  // By machine: what the runtime for it asks for. A machine may be missing.
  std::map<std::string, std::string> least_glibc;
  double seconds = 0;  // that all of it took
  bool deep = false;
  std::string nccl_interfaces;      // NCCL_SOCKET_IFNAME of the ranks; empty: not set
  std::optional<JobEngine> engine;  // whose allocation the hosts are
  Json world;                       // of a job of all hosts (common_world.h); null: none was tried

  // The needs of the runtime for that host; empty: unknown.
  std::string least_glibc_for(const Hello& hello) const {
    const auto found = least_glibc.find(hello.machine);
    return found == least_glibc.end() ? std::string() : found->second;
  }
};

enum class Severity { kNote, kWarning, kError };

struct Finding {
  Severity severity = Severity::kNote;
  std::string code;                // "D_CLOCK"
  std::vector<std::string> hosts;  // where; empty: the set as a whole
  std::string what, why, fix;
  std::vector<std::string> sources;  // of a known problem
};

// From facts to findings.

// Problems of single hosts.
std::vector<Finding> host_findings(const Examination& examination);
// Problems between hosts: routes, speed, packet sizes.
std::vector<Finding> link_findings(const Examination& examination);
// Those (from, to) whose numbers are so bad that they are worth a second look, and of two looks the
// better one.
std::vector<std::pair<int, int>> doubtful_ways(const Examination& examination);
Json better_of(const Json& first, Json second);
// All of that, clocks, and what differs.
std::vector<Finding> set_findings(const Examination& examination);
// Problems that the self-tests found, on each host and across hosts.
std::vector<Finding> selftest_findings(const Examination& examination);
// Every host has reached the others that it had to try.
bool all_routes_work(const Examination& examination);
// Combinations that are known to be bad (docs/known-problems).
std::vector<Finding> known_problem_findings(const Examination& examination);

// All of them, the same finding of several hosts as one, the worst first.
std::vector<Finding> find_problems(const Examination& examination);

// A member by its path, "python.packages.torch"; null when there is none.
const Json& member(const Json& value, std::string_view path);
// A text there; `otherwise` if it is not a text. A host's answer may have any type.
std::string text_in(const Json& value, std::string_view path, std::string otherwise = {});

}  // namespace hora::launcher::doctor
