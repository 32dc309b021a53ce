// SPDX-License-Identifier: Apache-2.0
#include "cpu_text.h"

#include "rendezvous/base/text.h"

namespace hora::doctor {

namespace {

// Of the first processor.
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

}  // namespace hora::doctor
