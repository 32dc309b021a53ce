// SPDX-License-Identifier: Apache-2.0
// What the doctor says about processors and GPUs.  [pure]
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace hora::doctor {

// What /proc/cpuinfo says of the processor.

// "Intel(R) Xeon(R) ..."; on ARM64, where the kernel knows only numbers, "Neoverse V2", or the
// numbers for a processor that is not known here. Empty when the text says nothing.
std::string cpu_model(std::string_view cpuinfo);

// What the NVIDIA driver and its tool print, as facts.

// "535.104.05" of /proc/driver/nvidia/version, of the closed module or the open one; "" when there
// is none.
std::string driver_version(std::string_view text);
// Parses `nvidia-smi --query-gpu=` kGpuQuestions: an array, one object per GPU.
inline constexpr const char* kGpuQuestions =
    "name,driver_version,memory.used,memory.total,ecc.errors.uncorrected.volatile.total,"
    "utilization.gpu";
nlohmann::ordered_json gpus_of(std::string_view csv);
// Counts the processes in `nvidia-smi --query-compute-apps=pid`.
int count_processes(std::string_view csv);

}  // namespace hora::doctor
