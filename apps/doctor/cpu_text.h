// SPDX-License-Identifier: Apache-2.0
// What /proc/cpuinfo says of the processor.  [pure]
#pragma once

#include <string>
#include <string_view>

namespace hora::doctor {

// "Intel(R) Xeon(R) ..."; on ARM64, where the kernel knows only numbers, "Neoverse V2", or the
// numbers for a processor that is not known here. Empty when the text says nothing.
std::string cpu_model(std::string_view cpuinfo);

}  // namespace hora::doctor
