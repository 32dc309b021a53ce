// SPDX-License-Identifier: Apache-2.0
// Blanks secrets in every text of a JSON document.  [pure]
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "launcher/report/secrets.h"

namespace hora::launcher {

inline void clean_json(nlohmann::ordered_json& value, const SecretFilter& secrets) {
  if (value.is_string()) {
    value = secrets.clean(value.get<std::string>());
  } else if (value.is_object()) {
    for (auto& [name, item] : value.items()) {
      if (item.is_string() && names_a_secret(name)) {
        item = "***";
      } else {
        clean_json(item, secrets);
      }
    }
  } else if (value.is_array()) {
    for (auto& item : value) clean_json(item, secrets);
  }
}

}  // namespace hora::launcher
