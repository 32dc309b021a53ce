// SPDX-License-Identifier: Apache-2.0
// The findings of horarun doctor by their codes: what horarun explain says about them.  [pure]
#pragma once

#include <span>
#include <string_view>

namespace hora::launcher {

struct FindingClass {
  std::string_view code;  // "D_SHM"
  std::string_view meaning;
  std::string_view fix;
};

std::span<const FindingClass> finding_classes();

}  // namespace hora::launcher
