// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/few_names.h"

#include "rendezvous/base/text.h"

namespace hora::launcher {

std::string few_names(const std::vector<std::string>& names) {
  if (names.size() <= kFewNames) return join(names, ", ");
  return join({names.begin(), names.begin() + kFewNames}, ", ") + " and " +
         std::to_string(names.size() - kFewNames) + " more";
}

}  // namespace hora::launcher
