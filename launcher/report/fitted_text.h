// SPDX-License-Identifier: Apache-2.0
// Tables and lines that fit the width of a terminal.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

// A table of cells, indented by two blanks. Where it is wider than `width` (0: of any width), the
// columns are as narrow as their cells, then those without a rank (`gives_way` 0) stay, and the
// others are left out, the highest rank first, or shortened.
struct TableColumn {
  std::size_t usual_width = 0;  // blanks between columns included
  int gives_way = 0;            // 1: is shortened; 2 and more: is left out before that
};
std::string fitted_table(const std::vector<TableColumn>& columns,
                         std::vector<std::vector<std::string>> rows, std::size_t width);

// Not more than `width` (0: any): of "File "/a/b/train.py", line 3" the path loses its beginning,
// of another line the end is left out.
std::string fitted_line(std::string_view line, std::size_t width);

}  // namespace hora::launcher
