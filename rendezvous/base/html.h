// SPDX-License-Identifier: Apache-2.0
// Pages for people: one file each, no script, nothing loaded from elsewhere; readable on a phone,
// in print and in the dark.  [pure]
#pragma once

#include <string>
#include <string_view>

namespace hora {

// For texts and for attributes in double quotes. Control characters become '?'.
std::string html_escaped(std::string_view text);
std::string html_section(std::string_view title);
// `body` is HTML. Its classes: bad, ok, warning and ended are colours; fix is what to do; pictures
// holds SVGs, side by side where there is room; chart is a line over time. The cells of a table
// that is to be read on a phone have the heading of their column in data-is.
std::string html_page(std::string_view title, std::string_view body);

}  // namespace hora
