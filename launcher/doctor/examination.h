// SPDX-License-Identifier: Apache-2.0
// What `horarun doctor` has learnt about hosts, and what it finds wrong.  [pure]
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/plan/job_spec.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher::doctor {

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

  // What the runtime for that host asks for; empty: nothing is known.
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

}  // namespace hora::launcher::doctor
