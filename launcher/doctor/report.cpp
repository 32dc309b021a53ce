// SPDX-License-Identifier: Apache-2.0
// The report for people has one line per host, and then the findings with their reasons. The JSON
// document holds all facts as well.
#include "launcher/doctor/report.h"

#include <algorithm>
#include <cstdio>

#include "launcher/doctor/findings.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/text/text.h"
#include "rendezvous/base/html.h"
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
std::string summary_of(const HostExamination& host, bool verbose) {
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
  const Json& containers = member(host.software, "containers");
  if (!verbose || !containers.is_object()) return out;
  for (const auto& [name, version] : containers.items()) out += ", " + short_text(version);
  return out;
}

// `look`: the class of the page's colour.
struct Verdict {
  std::string text;
  std::string look;
};

// Notes do not count: a host with only notes is "ok".
Verdict verdict_on(const std::string& host, const std::vector<Finding>& findings) {
  Severity worst = Severity::kNote;
  for (const Finding& finding : findings) {
    const bool concerns_it = std::ranges::find(finding.hosts, host) != finding.hosts.end();
    if (concerns_it) worst = std::max(worst, finding.severity);
  }
  if (worst == Severity::kNote) return {"ok", "ok"};
  return worst == Severity::kError ? Verdict{"BAD", "bad"} : Verdict{"warning", "warning"};
}

bool is_note(const Finding& finding) { return finding.severity == Severity::kNote; }

// "error [D_NCCL] node1, node2"
std::string head_of(const Finding& finding) {
  std::string head = std::string(severity_name(finding.severity)) + " [" + finding.code + "]";
  return finding.hosts.empty() ? head : head + " " + few_names(finding.hosts);
}

// "3 hosts examined in 2.1 s: 1 error, 0 warnings, 2 notes"
std::string sum_of(const Examination& examination, const std::vector<Finding>& findings) {
  const auto count = [&findings](Severity severity) {
    const auto has = [severity](const Finding& each) { return each.severity == severity; };
    return counted(static_cast<std::size_t>(std::ranges::count_if(findings, has)),
                   severity_name(severity));
  };
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f s", examination.seconds);
  return counted(examination.hosts.size(), "host") + " examined in " + seconds + ": " +
         count(Severity::kError) + ", " + count(Severity::kWarning) + ", " + count(Severity::kNote);
}

std::string finding_html(const Finding& finding) {
  const char* const look = finding.severity == Severity::kError     ? "bad"
                           : finding.severity == Severity::kWarning ? "warning"
                                                                    : "ended";
  std::string out = "<h2 class=\"" + std::string(look) + "\">" + html_escaped(head_of(finding)) +
                    "</h2>\n<p>" + html_escaped(finding.what) +
                    "</p>\n<p class=\"fix\"><b>What to do:</b> " + html_escaped(finding.fix) +
                    "</p>\n<p><b>Why:</b> " + html_escaped(finding.why) + "</p>\n";
  for (const std::string& source : finding.sources) {
    const std::string link = html_escaped(source);
    out += "<p><a href=\"" + link + "\">" + link + "</a></p>\n";
  }
  return out;
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
    out += padded(host.name, width + 2) + padded(verdict_on(host.name, findings).text, 9) +
           summary_of(host, verbose) + "\n";
  }
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kNote && !verbose) continue;
    out += "\n" + head_of(finding) + ": " + finding.what + "\n";
    out += "  why: " + finding.why + "\n";
    out += "  fix: " + finding.fix + "\n";
    for (const std::string& source : finding.sources) out += "  see: " + source + "\n";
  }
  const bool hides_notes = !verbose && std::ranges::any_of(findings, is_note);
  return out + "\n" + sum_of(examination, findings) +
         (hides_notes ? " (--verbose shows notes)\n" : "\n");
}

std::string report_html(const Examination& examination, const std::vector<Finding>& findings) {
  const bool bad = exit_code_of(findings) != kExitOk;
  std::string out = "<h1>horarun doctor</h1>\n<p class=\"" + std::string(bad ? "bad" : "ok") +
                    "\">" + html_escaped(sum_of(examination, findings)) + "</p>\n";
  if (examination.engine) out += "<p>" + html_escaped(examination.engine->text) + "</p>\n";
  std::string notes;
  for (const Finding& finding : findings) {
    (is_note(finding) ? notes : out) += finding_html(finding);
  }
  out += html_section("Hosts") + "<table>\n<tr><th>host</th><th>verdict</th><th>it has</th></tr>\n";
  for (const HostExamination& host : examination.hosts) {
    const Verdict verdict = verdict_on(host.name, findings);
    out += "<tr><td data-is=\"host\">" + html_escaped(host.name) +
           "</td><td data-is=\"verdict\" class=\"" + verdict.look + "\">" + verdict.text +
           "</td><td data-is=\"it has\">" + html_escaped(summary_of(host, false)) + "</td></tr>\n";
  }
  out += "</table>\n";
  if (!notes.empty()) out += "<details><summary>Notes</summary>\n" + notes + "</details>\n";
  return html_page("horarun doctor", out);
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
