// SPDX-License-Identifier: Apache-2.0
// The JSON of hora_describe(). Written by hand: the library carries no JSON library, and the
// document is flat.
#include "collectives/runtime/describe.h"

#include <algorithm>

#include "collectives/backends/registry.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {

namespace {

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string boolean(bool value) { return value ? "true" : "false"; }

std::string list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& each : items) text += (text.size() == 1 ? "" : ",") + json_string(each);
  return text + "]";
}

// One backend: built, loadable on this host, and whether this job uses it.
std::string describe_backend(const BackendRow& row, const Communicator* communicator) {
  const bool built = row.why_not_built == nullptr;
  std::string version;
  std::string why;
  bool usable = false;
  ErrorText no_use;
  std::vector<std::string> notes;
  // Inside a job, a module that nobody needs is not loaded just to describe it. Without a job this
  // is --check-build, which wants to know.
  if (communicator != nullptr && !is_called_for(row, no_use)) {
    why = no_use.text;
  } else if (auto descriptor = load_backend(row)) {
    version = (*descriptor)->version();
    ProbeContext context;
    if (communicator != nullptr) {
      context.world_size = communicator->world().settings.size;
      context.local_size = communicator->world().settings.local_size;
    }
    ErrorText reason;
    usable = (*descriptor)->probe(context, reason);
    why = reason.text;
  } else {
    why = descriptor.error().message;
  }
  bool enabled = false;
  if (communicator != nullptr) {
    const auto list = communicator->engine().backends().enabled();
    enabled = std::find(list.begin(), list.end(), row.id) != list.end();
    for (const auto& [id, reason] : communicator->engine().backends().left_out()) {
      if (id == row.id) why = reason;
    }
    for (const auto& [id, note] : communicator->engine().backends().notes()) {
      if (id == row.id) notes.push_back(note);
    }
  }
  return "{\"id\":" + json_string(row.id) + ",\"built\":" + boolean(built) +
         ",\"usable\":" + boolean(usable) + ",\"enabled\":" + boolean(enabled) +
         ",\"version\":" + json_string(version) + ",\"why_not\":" + json_string(why) +
         ",\"notes\":" + list(notes) + "}";
}

// Whether small operations can bypass rank 0, or why not; on several hosts, the leader of each.
std::string describe_lane(const Engine& engine, int rank) {
  const FastPath* const fast_path = engine.fast_path();
  std::string text = ",\"fast_path\":" + boolean(fast_path != nullptr) +
                     ",\"why_no_fast_path\":" + json_string(engine.met().why_no_fast_path);
  const LeaderPlan* const plan = engine.leaders();
  if (plan == nullptr) return text;
  text += ",\"leads_its_host\":" + boolean(plan->leader_of(plan->host) == rank) + ",\"leaders\":[";
  for (int host = 0; host < plan->hosts(); ++host) {
    text += (host == 0 ? "" : ",") + std::to_string(plan->leader_of(host));
  }
  return text + "],\"round_trip_us\":" + std::to_string(engine.met().round_trip.count());
}

}  // namespace

std::string describe(const Communicator* communicator) {
  std::string text = "{\"version\":" + json_string(HORA_VERSION) +
                     ",\"abi\":" + std::to_string(HORA_ABI_VERSION) +
                     ",\"library\":" + json_string(library_folder()) +
                     ",\"simd\":" + json_string(kernels().instruction_set) + ",\"backends\":[";
  bool first = true;
  for (const BackendRow& row : backend_rows()) {
    if (!first) text += ',';
    first = false;
    text += describe_backend(row, communicator);
  }
  text += "]";
  if (communicator != nullptr) {
    const Settings& settings = communicator->world().settings;
    text += ",\"rank\":" + std::to_string(settings.rank) +
            ",\"size\":" + std::to_string(settings.size) +
            ",\"address\":" + json_string(communicator->world().address) +
            ",\"fusion_threshold_bytes\":" +
            std::to_string(settings.parameters.fusion_threshold_bytes) +
            ",\"fast_path_operations\":" + std::to_string(communicator->engine().fast_path_runs()) +
            describe_lane(communicator->engine(), settings.rank) + ",\"selection\":" +
            json_string(format_table(communicator->engine().backends().table()));
  }
  return text + "}";
}

}  // namespace hora::collectives
