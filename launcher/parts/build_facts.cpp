// SPDX-License-Identifier: Apache-2.0
// Prints what --check-build shows. The layout is Horovod's, since scripts search it.
#include "launcher/parts/build_facts.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "launcher/text/text.h"

namespace hora::launcher {

namespace {

using nlohmann::ordered_json;

bool has_framework(const BuildFacts& facts, const std::string& package) {
  return facts.runtime_error.empty() && std::find(facts.frameworks.begin(), facts.frameworks.end(),
                                                  package) != facts.frameworks.end();
}

struct Box {
  const char* label;
  bool is_ticked;
};

std::vector<Box> framework_boxes(const BuildFacts& facts) {
  return {{"TensorFlow", has_framework(facts, "tensorflow")},
          {"PyTorch", has_framework(facts, "torch")},
          {"MXNet", has_framework(facts, "mxnet")}};
}

std::vector<Box> controller_boxes(const BuildFacts& facts) {
  // Horovod's two ways to start and coordinate ranks. Hora's own, which every runtime has, answers
  // to the name Gloo.
  return {{"MPI", facts.mpi_engine && facts.loads("mpi")}, {"Gloo", facts.runtime_error.empty()}};
}

// DDL is not supported, but its box stays because scripts look for it.
std::vector<Box> operation_boxes(const BuildFacts& facts) {
  return {{"NCCL", facts.loads("nccl")},
          {"DDL", false},
          {"CCL", facts.loads("ccl")},
          {"MPI", facts.loads("mpi")},
          {"Gloo", facts.loads("gloo")}};
}

std::string boxes_text(const std::string& heading, const std::vector<Box>& boxes) {
  std::string out = heading + ":\n";
  for (const Box& box : boxes) {
    out += std::string("    [") + (box.is_ticked ? "X" : " ") + "] " + box.label + "\n";
  }
  return out;
}

const char* yes_no(bool value) { return value ? "yes" : "no"; }

std::string feature_line(const FeatureFact& fact) {
  std::string out = "    " + column(fact.name, 7) + column(yes_no(fact.built), 7) +
                    column(fact.built ? yes_no(fact.loads) : "", 7) +
                    column(fact.version_built, 15) + column(fact.version_found, 20);
  out += fact.path.empty() ? "-" : fact.path;
  if (!fact.note.empty()) out += "  " + fact.note;
  return out + "\n";
}

std::string machine_line(const MachineFact& fact) {
  std::string out = "    " + column(fact.machine, 9);
  if (!fact.fault.empty()) {
    out += "cannot be used: " + fact.fault;
  } else if (fact.least_glibc.empty()) {
    out += "no runtime";
  } else {
    out += "hosts need glibc " + fact.least_glibc + " or newer";
  }
  return out + "\n";
}

// In the verbose text alone: the boxes above are Horovod's, and the ability to send a library says
// nothing about this machine.
std::string vendor_line(const VendorFact& fact) {
  std::string out = "    " + column(fact.name, 9);
  if (!fact.fault.empty()) return out + "none: " + fact.fault + "\n";
  char size[32];
  std::snprintf(size, sizeof size, "%.1f MB", static_cast<double>(fact.bytes) / 1e6);
  out += column(size, 9);
  if (!fact.least_glibc.empty()) out += "to glibc " + fact.least_glibc + " or newer  ";
  return out + fact.path + "\n";
}

std::string verbose_text(const BuildFacts& facts) {
  std::string out = "\nFeatures:\n    ";
  out += column("", 7).replace(0, 1, " ") + column("built", 7) + column("loads", 7) +
         column("built against", 15) + column("found here", 20) + "path\n";
  for (const FeatureFact& fact : facts.features) out += feature_line(fact);
  out += "\nProcessors of hosts:\n";
  for (const MachineFact& fact : facts.machines) out += machine_line(fact);
  if (!facts.vendors.empty()) out += "\nSent to hosts that have none:\n";
  for (const VendorFact& fact : facts.vendors) out += vendor_line(fact);
  out += "\nRuntime: " + (facts.runtime_path.empty() ? "none" : facts.runtime_path) + "\n";
  if (!facts.runtime_error.empty()) out += "    does not load: " + facts.runtime_error + "\n";
  for (const auto& [id, backend] : facts.backends) {
    out += "    " + column(id, 7) + column(backend.loads ? "loads" : "does not load", 15);
    out += column(backend.version, 20);
    out += backend.usable ? "usable here" : "not usable here";
    if (!backend.why_not.empty()) out += ": " + backend.why_not;
    out += "\n";
  }
  return out;
}

ordered_json boxes_json(const std::vector<Box>& boxes) {
  ordered_json out = ordered_json::object();
  for (const Box& box : boxes) out[box.label] = box.is_ticked;
  return out;
}

}  // namespace

bool BuildFacts::loads(const std::string& backend) const {
  const auto found = backends.find(backend);
  return runtime_error.empty() && found != backends.end() && found->second.loads;
}

std::string format_build_facts(const BuildFacts& facts, bool verbose) {
  std::string out = verbose ? "\n" : "";
  out += facts.title + ":\n\n";
  out += boxes_text("Available Frameworks", framework_boxes(facts)) + "\n";
  out += boxes_text("Available Controllers", controller_boxes(facts)) + "\n";
  out += boxes_text("Available Tensor Operations", operation_boxes(facts));
  // The last line of this layout has always ended in blanks.
  out.insert(out.size() - 1, 4, ' ');
  if (verbose) out += verbose_text(facts);
  return out;
}

std::string format_build_facts_json(const BuildFacts& facts) {
  ordered_json out;
  out["schema"] = 1;
  out["version"] = facts.version;
  out["frameworks"] = boxes_json(framework_boxes(facts));
  out["controllers"] = boxes_json(controller_boxes(facts));
  out["tensor_operations"] = boxes_json(operation_boxes(facts));
  out["features"] = ordered_json::array();
  for (const FeatureFact& fact : facts.features) {
    out["features"].push_back({{"name", fact.name},
                               {"built", fact.built},
                               {"loads", fact.loads},
                               {"version_built", fact.version_built},
                               {"version_found", fact.version_found},
                               {"path", fact.path},
                               {"note", fact.note}});
  }
  out["machines"] = ordered_json::array();
  for (const MachineFact& fact : facts.machines) {
    out["machines"].push_back(
        {{"name", fact.machine}, {"least_glibc", fact.least_glibc}, {"fault", fact.fault}});
  }
  out["vendors"] = ordered_json::array();
  for (const VendorFact& fact : facts.vendors) {
    out["vendors"].push_back({{"name", fact.name},
                              {"path", fact.path},
                              {"bytes", fact.bytes},
                              {"least_glibc", fact.least_glibc},
                              {"fault", fact.fault}});
  }
  out["runtime"] = {{"path", facts.runtime_path},
                    {"least_glibc", facts.machines.empty() ? "" : facts.machines[0].least_glibc},
                    {"error", facts.runtime_error}};
  out["backends"] = ordered_json::array();
  for (const auto& [id, backend] : facts.backends) {
    out["backends"].push_back({{"id", id},
                               {"loads", backend.loads},
                               {"usable", backend.usable},
                               {"version", backend.version},
                               {"why_not", backend.why_not}});
  }
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hora::launcher
