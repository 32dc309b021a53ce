// SPDX-License-Identifier: Apache-2.0
// The instruction set that the user asks for.
#pragma once

namespace hora::collectives {

// The value of HORA_SIMD; null when it is not set.
const char* simd_setting() noexcept;

}  // namespace hora::collectives
