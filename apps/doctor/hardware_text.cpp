// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/hardware_text.h"

#include "hardware_text.h"
#include "rendezvous/base/text.h"

namespace hora::doctor {

namespace {

// The first processor's.
std::string_view field_of(std::string_view cpuinfo, std::string_view name) {
  for (const std::string_view line : split(cpuinfo, '\n')) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || trim(line.substr(0, colon)) != name) continue;
    return trim(line.substr(colon + 1));
  }
  return {};
}

// The processors of servers; the numbers are those that lscpu knows.
struct ArmPart {
  std::string_view implementer;
  std::string_view part;
  std::string_view name;
};
constexpr ArmPart kArmParts[] = {
    {"0x41", "0xd08", "Cortex-A72"},  {"0x41", "0xd0c", "Neoverse N1"},
    {"0x41", "0xd40", "Neoverse V1"}, {"0x41", "0xd49", "Neoverse N2"},
    {"0x41", "0xd4f", "Neoverse V2"}, {"0x41", "0xd84", "Neoverse V3"},
    {"0x46", "0x001", "A64FX"},       {"0xc0", "0xac3", "Ampere-1"},
    {"0xc0", "0xac4", "Ampere-1a"},
};

}  // namespace

std::string cpu_model(std::string_view cpuinfo) {
  if (const auto model = field_of(cpuinfo, "model name"); !model.empty()) return std::string(model);
  const std::string_view implementer = field_of(cpuinfo, "CPU implementer");
  const std::string_view part = field_of(cpuinfo, "CPU part");
  if (implementer.empty() || part.empty()) return {};
  for (const ArmPart& known : kArmParts) {
    if (known.implementer == implementer && known.part == part) return std::string(known.name);
  }
  return "implementer " + std::string(implementer) + ", part " + std::string(part);
}

// Parses the texts of NVIDIA's tools. Fields that are missing or "[N/A]" have neutral values.
using Json = nlohmann::ordered_json;

// The closed driver says "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19
// ...", the open one "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release
// Build ...". The version is the first word with a digit and a dot after "Kernel Module".
std::string driver_version(std::string_view text) {
  const std::size_t at = text.find("Kernel Module");
  if (at == std::string_view::npos) return {};
  text = text.substr(at, text.find('\n', at) - at);
  for (const std::string_view word : split(text, ' ')) {
    if (!word.empty() && is_digit(word.front()) && word.find('.') != std::string_view::npos) {
      return std::string(word);
    }
  }
  return {};
}

Json gpus_of(std::string_view csv) {
  Json gpus = Json::array();
  for (const std::string_view line : split(csv, '\n')) {
    const auto parts = split(line, ',');
    if (parts.size() < 6) continue;
    const auto number = [&parts](std::size_t i, std::int64_t otherwise) {
      return parse_int<std::int64_t>(trim(parts[i])).value_or(otherwise);
    };
    Json gpu;
    gpu["name"] = std::string(trim(parts[0]));
    gpu["driver"] = std::string(trim(parts[1]));
    gpu["used_mib"] = number(2, -1);
    gpu["total_mib"] = number(3, -1);
    // "[N/A]" for a GPU without such memory.
    gpu["ecc_errors"] = number(4, 0);
    gpu["utilization"] = number(5, 0);
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

int count_processes(std::string_view csv) {
  int count = 0;
  for (const std::string_view line : split(csv, '\n')) {
    const std::string_view word = trim(line);
    if (!word.empty() && is_digit(word.front())) ++count;
  }
  return count;
}

}  // namespace hora::doctor
