// SPDX-License-Identifier: Apache-2.0
// Variables of Horovod's runtime that have no effect here.  [pure]
// A user who has set one wants something, so it is told once, with the reason.
#pragma once

#include <string>

#include "collectives/runtime/settings.h"

namespace hora::collectives {

// One line for all that ask for something; empty: none does.
std::string describe_unused_settings(const Variables& variables);

}  // namespace hora::collectives
