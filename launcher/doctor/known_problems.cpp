// SPDX-License-Identifier: Apache-2.0
// The table of docs/known-problems, applied to each host.  [pure]
#include <algorithm>

#include "launcher/doctor/findings.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::doctor {

extern const char* const kKnownProblems;  // made from docs/known-problems/problems.json

namespace {

std::string text_of(const Json& value) {
  if (value.is_array()) {
    std::vector<std::string> parts;
    for (const Json& item : value) parts.push_back(text_of(item));
    return join(parts, ", ");
  }
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "" : value.dump();
}

// Returns the versions of the NCCL copies that could be loaded, each once.
Json nccl_versions(const Json& selftests) {
  Json versions = Json::array();
  const Json& copies = member(selftests, "nccl_copies");
  for (const Json& copy : copies.is_array() ? copies : Json::array()) {
    const Json& version = member(copy, "version");
    if (!version.is_string()) continue;
    if (std::find(versions.begin(), versions.end(), version) == versions.end())
      versions.push_back(version);
  }
  return versions;
}

// Merges the facts about machine and software into the one document that the conditions refer to.
Json facts_of(const HostExamination& host) {
  Json facts = host.machine;
  for (const auto& [name, value] : host.software.items()) facts[name] = value;
  facts["selftests"] = host.selftests;
  facts["nccl"]["versions"] = nccl_versions(host.selftests);
  if (!facts.contains("python") || !facts["python"].is_object()) return facts;
  Json nccl = Json::array();
  const Json& packages = member(facts, "python.packages");
  if (packages.is_object()) {
    for (const auto& [name, version] : packages.items()) {
      // NCCL's Python packages carry CUDA's version in their names.
      if (name.rfind("nvidia-nccl-", 0) == 0) nccl.push_back(name + " " + text_of(version));
    }
  }
  facts["python"]["nccl_packages"] = std::move(nccl);
  return facts;
}

// A condition about a fact that is unknown does not hold, except "absent".
bool holds(const Json& condition, const Json& facts) {
  const std::string operation = condition.begin().key();
  const Json& operands = condition.begin().value();
  if (operation == "absent") return member(facts, operands.get<std::string>()).is_null();
  if (operation == "present") return !member(facts, operands.get<std::string>()).is_null();
  const Json& value = member(facts, operands[0].get<std::string>());
  if (value.is_null()) return false;
  if (operation == "count_above")
    return value.is_array() && value.size() > operands[1].get<std::size_t>();
  if (operation == "count_below")
    return value.is_array() && value.size() < operands[1].get<std::size_t>();
  if (operation == "equals") return text_of(value) == operands[1].get<std::string>();
  if (operation == "contains") {
    return value.is_array() && std::find(value.begin(), value.end(), operands[1]) != value.end();
  }
  if (operation == "differs") {
    const Json& other = member(facts, operands[1].get<std::string>());
    return !other.is_null() && compare_versions(text_of(value), text_of(other)) != 0;
  }
  const int order = compare_versions(text_of(value), operands[1].get<std::string>());
  return operation == "below" ? order < 0 : operation == "at_least" && order >= 0;
}

// Replaces "{python.packages.torch}" by its value.
std::string filled(const std::string& pattern, const Json& facts) {
  std::string out;
  for (std::size_t at = 0; at < pattern.size();) {
    const std::size_t end = pattern[at] == '{' ? pattern.find('}', at) : std::string::npos;
    if (end == std::string::npos) {
      out += pattern[at++];
    } else {
      out += text_of(member(facts, pattern.substr(at + 1, end - at - 1)));
      at = end + 1;
    }
  }
  return out;
}

}  // namespace

std::vector<Finding> known_problem_findings(const Examination& examination) {
  std::vector<Finding> out;
  // The table is part of the program, and a test checks it, so no error is possible here.
  const Json table = Json::parse(kKnownProblems);
  for (const HostExamination& host : examination.hosts) {
    if (!host.machine.is_object() || !host.software.is_object()) continue;
    const Json facts = facts_of(host);
    for (const Json& row : table) {
      const Json& when = row["when"];
      // All conditions of a row must hold.
      if (!std::all_of(when.begin(), when.end(), [&](const Json& c) { return holds(c, facts); }))
        continue;
      const std::string severity = row["severity"];
      Finding finding{severity == "error"     ? Severity::kError
                      : severity == "warning" ? Severity::kWarning
                                              : Severity::kNote,
                      "K_" + row["id"].get<std::string>(),
                      {host.name},
                      filled(row["what"], facts),
                      row["why"],
                      row["fix"],
                      {}};
      for (const Json& source : row["sources"]) finding.sources.push_back(source);
      out.push_back(std::move(finding));
    }
  }
  return out;
}

}  // namespace hora::launcher::doctor
