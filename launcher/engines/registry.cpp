// SPDX-License-Identifier: Apache-2.0
#include "launcher/engines/registry.h"

namespace hora::launcher {

// Each engine defines one function, at the end of its file; the generated hora_engines.inc has one
// line per engine. As in launcher/transports/registry.cpp.
#define HORA_ENGINE(name) const EngineDescriptor* name##_engine_descriptor();
#include "hora_engines.inc"
#undef HORA_ENGINE

std::span<const EngineDescriptor* const> engines() {
#define HORA_ENGINE(name) name##_engine_descriptor(),
  static const EngineDescriptor* const all[] = {
#include "hora_engines.inc"
  };
#undef HORA_ENGINE
  return all;
}

const EngineDescriptor* find_engine(std::string_view name) {
  for (const EngineDescriptor* each : engines()) {
    if (each->name == name) return each;
  }
  return nullptr;
}

// Some variables of an allocation stay set, empty, in what is started from it.
bool is_here(const EngineDescriptor& engine, const EngineInputs& inputs) {
  if (engine.is_here != nullptr) return engine.is_here(inputs);
  const auto value = inputs.variable(engine.mark);
  return value && !value->empty();
}

const EngineDescriptor* engine_here(const EngineInputs& inputs) {
  for (const EngineDescriptor* each : engines()) {
    if (is_here(*each, inputs)) return each;
  }
  return nullptr;
}

std::string engine_reference() {
  std::string out =
      "| engine | inside of an allocation if | hosts and slots | agents start by |\n"
      "|---|---|---|---|\n";
  for (const EngineDescriptor* each : engines()) {
    out += "| " + std::string(each->title) + ": `--engine " + std::string(each->name) + "` | `$" +
           std::string(each->mark) + "` | " + std::string(each->from) + " | " +
           std::string(each->how) + " |\n";
  }
  return out;
}

}  // namespace hora::launcher
