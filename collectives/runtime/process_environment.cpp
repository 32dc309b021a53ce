// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/process_environment.h"

#include <cstdlib>

namespace hora::collectives {

std::optional<std::string> process_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

}  // namespace hora::collectives
