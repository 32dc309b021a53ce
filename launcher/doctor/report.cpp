// SPDX-License-Identifier: Apache-2.0
// The report for people has one line per host, and then the findings with their reasons. The JSON
// document holds all facts as well.
#include "launcher/doctor/report.h"

#include <algorithm>
#include <cstdio>

#include "launcher/doctor/findings.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::doctor {

namespace {

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string short_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "-" : value.dump();
}

// "4 CPUs, 15.6 GiB, Python 3.11.2, torch 2.1.0"
std::string summary_of(const HostExamination& host) {
  if (host.failure) return "not examined";
  if (host.machine.is_null()) return "no answer";
  std::string out = short_text(member(host.machine, "cpu.usable")) + " CPUs";
  const Json& memory = member(host.machine, "memory.total_bytes");
  if (memory.is_number()) {
    char text[32];
    std::snprintf(text, sizeof text, ", %.1f GiB", memory.get<double>() / (1 << 30));
    out += text;
  }
  const Json& gpus = member(host.machine, "gpus.devices");
  if (gpus.is_number_integer() && gpus.get<int>() > 0) out += ", " + gpus.dump() + " GPUs";
  const Json& python = member(host.software, "python.version");
  if (python.is_string()) out += ", Python " + python.get<std::string>();
  const Json& packages = member(host.software, "python.packages");
  for (const std::string name : {"torch", "tensorflow", "jax", "horovod"}) {
    if (packages.is_object() && packages.contains(name))
      out += ", " + name + " " + short_text(packages[name]);
  }
  return out;
}

// Notes do not count: a host with only notes is "ok".
Severity worst_of(const std::string& host, const std::vector<Finding>& findings, bool& any) {
  Severity worst = Severity::kNote;
  any = false;
  for (const Finding& finding : findings) {
    if (std::find(finding.hosts.begin(), finding.hosts.end(), host) == finding.hosts.end())
      continue;
    if (finding.severity == Severity::kNote) continue;
    any = true;
    worst = std::max(worst, finding.severity);
  }
  return worst;
}

Json host_json(const Examination& examination, const HostExamination& host) {
  Json item;
  item["name"] = host.name;
  item["slots"] = host.slots;
  if (host.failure) {
    item["failure"]["code"] = host.failure->code;
    item["failure"]["message"] = host.failure->message;
  }
  if (host.hello) {
    item["user"] = host.hello->user;
    item["interfaces"] = Json::array();
    for (const InterfaceInfo& nic : host.hello->interfaces) {
      Json one;
      one["name"] = nic.name;
      one["address"] = nic.address + "/" + std::to_string(nic.prefix_length);
      one["up"] = nic.up;
      one["loopback"] = nic.loopback;
      one["speed_mbps"] = nic.speed_mbps;
      one["mtu"] = nic.mtu;
      item["interfaces"].push_back(std::move(one));
    }
  }
  if (host.clock_offset_ms) {
    item["clock_offset_ms"] = *host.clock_offset_ms;
    item["clock_error_ms"] = host.clock_error_ms;
  }
  item["machine"] = host.machine;
  item["software"] = host.software;
  item["leftovers"] = host.leftovers;
  item["selftests"] = host.selftests;
  item["peers"] = Json::array();
  for (const auto& [index, answer] : host.peers) {
    Json peer = answer;
    // The nonce of the probe means nothing to a reader.
    peer.erase("probe");
    peer["host"] = examination.hosts[static_cast<std::size_t>(index)].name;
    item["peers"].push_back(std::move(peer));
  }
  return item;
}

Json finding_json(const Finding& finding) {
  Json item;
  item["severity"] = severity_name(finding.severity);
  item["code"] = finding.code;
  item["hosts"] = finding.hosts;
  item["what"] = finding.what;
  item["why"] = finding.why;
  item["fix"] = finding.fix;
  item["sources"] = finding.sources;
  return item;
}

}  // namespace

std::string_view severity_name(Severity severity) {
  return severity == Severity::kError     ? "error"
         : severity == Severity::kWarning ? "warning"
                                          : "note";
}

// Only errors make doctor fail, so that it can guard a job in a script.
int exit_code_of(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.severity == Severity::kError; })
             ? kExitFailed
             : kExitOk;
}

std::string report_text(const Examination& examination, const std::vector<Finding>& findings,
                        bool verbose) {
  std::size_t width = 4;
  for (const HostExamination& host : examination.hosts) width = std::max(width, host.name.size());
  std::string out;
  for (const HostExamination& host : examination.hosts) {
    bool any = false;
    const Severity worst = worst_of(host.name, findings, any);
    out += padded(host.name, width + 2) +
           padded(any ? (worst == Severity::kError ? "BAD" : "warning") : "ok", 9) +
           summary_of(host) + "\n";
  }
  std::size_t errors = 0;
  std::size_t warnings = 0;
  std::size_t notes = 0;
  for (const Finding& finding : findings) {
    (finding.severity == Severity::kError     ? errors
     : finding.severity == Severity::kWarning ? warnings
                                              : notes)++;
    if (finding.severity == Severity::kNote && !verbose) continue;
    out += "\n" + std::string(severity_name(finding.severity)) + " [" + finding.code + "]";
    if (!finding.hosts.empty()) out += " " + few_names(finding.hosts);
    out += ": " + finding.what + "\n";
    out += "  why: " + finding.why + "\n";
    out += "  fix: " + finding.fix + "\n";
    for (const std::string& source : finding.sources) out += "  see: " + source + "\n";
  }
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", examination.seconds);
  return out + "\n" + counted(examination.hosts.size(), "host") + " examined in " + seconds + ": " +
         counted(errors, "error") + ", " + counted(warnings, "warning") + ", " +
         counted(notes, "note") + (notes > 0 && !verbose ? " (--verbose shows notes)\n" : "\n");
}

std::string report_json(const Examination& examination, const std::vector<Finding>& findings) {
  Json document;
  document["schema"] = 1;
  document["seconds"] = examination.seconds;
  document["deep"] = examination.deep;
  if (const auto& engine = examination.engine) {
    document["engine"] = {{"name", engine->name}, {"job", engine->job}, {"text", engine->text}};
  }
  document["hosts"] = Json::array();
  for (const HostExamination& host : examination.hosts) {
    document["hosts"].push_back(host_json(examination, host));
  }
  document["world"] = examination.world;
  document["findings"] = Json::array();
  for (const Finding& finding : findings) document["findings"].push_back(finding_json(finding));
  // Facts may contain any bytes; invalid UTF-8 is replaced.
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hora::launcher::doctor
