// SPDX-License-Identifier: Apache-2.0
// The columns of tables for people.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hora::launcher {

// Of at most `most` characters: the end of a longer one gives way to "...". Counts code points of
// UTF-8 and cuts none in two.
std::string shortened(std::string_view text, std::size_t most);

// `text`, or "-" for none, and blanks up to `width` characters: two of them at least, so that a
// long text does not run into the next column.
std::string column(std::string_view text, std::size_t width);

}  // namespace hora::launcher
