// SPDX-License-Identifier: Apache-2.0
// Interprets the output, the end and the last words of hora-selftest.  [pure]
#pragma once

#include <chrono>

#include <nlohmann/json.hpp>

#include "child.h"

namespace hora::doctor {

// Its answer; with an error, "error", and "stage" for where that was.
nlohmann::ordered_json selftest_result(const Answer& answer, std::chrono::milliseconds timeout);

}  // namespace hora::doctor
