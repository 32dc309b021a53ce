// SPDX-License-Identifier: Apache-2.0
// The one place that includes Catch2: 2.13 or 3, whichever the distribution has.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
