// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/simd_setting.h"

#include <cstdlib>

namespace hora::collectives {

const char* simd_setting() noexcept { return std::getenv("HORA_SIMD"); }

}  // namespace hora::collectives
