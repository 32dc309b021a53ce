// SPDX-License-Identifier: Apache-2.0
// What horarun explain says about a code of horarun doctor.  [pure]
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::launcher::doctor {

struct FindingClass {
  std::string_view code;  // "D_SHM"
  std::string_view meaning;
  std::string_view fix;
};

std::span<const FindingClass> finding_classes();

// Whether `code` is one of doctor's: "D_SHM", "d-shm".
bool is_finding_code(std::string_view code);

// A kUsage error names a code that is close.
Result<std::string> explain_finding(std::string_view code);

}  // namespace hora::launcher::doctor
