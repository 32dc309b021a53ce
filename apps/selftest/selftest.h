// SPDX-License-Identifier: Apache-2.0
// The tests of hora-selftest. Each prints its stage before it begins, so that a reader of the
// output knows where it was when it crashed or hung.
#pragma once

#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace hora::selftest {

using Json = nlohmann::ordered_json;
using ReportStage = std::function<void(const char* stage)>;

// Each answers an object; one that failed has "error".

// Loads libhora as a rank does, joins the world that the environment describes, and adds a few
// numbers.
Json test_library(const ReportStage& at);
// Loads one backend's module and its vendor's library, and lets it add a few numbers, alone. The
// file `vendor_library`, if any, is loaded before and so is the one that the module finds.
Json test_backend(const std::string& id, const std::string& vendor_library, const ReportStage& at);
// Asks the NVIDIA driver's libraries for their versions and state.
Json test_driver(const ReportStage& at);
// The version of one copy of NCCL.
Json test_nccl_copy(const std::string& path, const ReportStage& at);

}  // namespace hora::selftest
