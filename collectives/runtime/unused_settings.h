// SPDX-License-Identifier: Apache-2.0
// Variables of Horovod's runtime, and values of our own, that have no effect here.  [pure]
// A user who has set one wants something, so it is told once, with the reason.
#pragma once

#include <string>
#include <string_view>

#include "collectives/runtime/settings.h"

namespace hora::collectives {

// One line for all that ask for something; empty: none does. HORA_SIMD is one of them where it
// names anything but `instruction_set`, which the kernels use.
std::string describe_unused_settings(const Variables& variables, std::string_view instruction_set);

}  // namespace hora::collectives
