// SPDX-License-Identifier: Apache-2.0
// The one place that includes Catch2: 2.13 or 3, whichever the distribution has.
#pragma once

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
// Of this name it has a matcher for elements of ranges.
inline auto Contains(const std::string& text) { return Catch::Matchers::ContainsSubstring(text); }
#else
#include <catch2/catch.hpp>
using Catch::Matchers::Contains;
#endif
