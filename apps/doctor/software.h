// SPDX-License-Identifier: Apache-2.0
// What is installed here, by asking it: Python and its frameworks, the GPU driver, the C library.
#pragma once

#include <chrono>

#include "facts.h"

namespace hora::doctor {

// With `deep` every framework is imported and does a tiny operation; else only its version is read.
Json software_facts(bool deep, std::chrono::milliseconds patience);

}  // namespace hora::doctor
