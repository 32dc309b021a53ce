// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/fitted_text.h"

#include <algorithm>
#include <optional>

#include "launcher/text/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kGap = 2;
constexpr std::size_t kNarrowest = 6;  // "abc..."

constexpr std::string_view kLeftOut = "...";

// All bytes of a character but the first are 10xxxxxx.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u; }));
}

using Rows = std::vector<std::vector<std::string>>;

std::size_t total(const std::vector<std::size_t>& widths) {
  std::size_t sum = kIndent;
  for (const std::size_t width : widths) sum += width + kGap;
  return sum - std::min(sum, kGap);
}

std::vector<std::size_t> cell_widths(const Rows& rows, std::size_t columns) {
  std::vector<std::size_t> widths(columns, 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], characters(row[i]));
  }
  return widths;
}

std::string laid_out(const Rows& rows, const std::vector<std::size_t>& widths) {
  std::string out;
  for (const auto& row : rows) {
    out.append(kIndent, ' ');
    for (std::size_t i = 0; i + 1 < row.size(); ++i) out += column(row[i], widths[i]);
    out += row.back() + "\n";
  }
  return out;
}

// The next to be left out; none: only columns that are shortened, or stay, are left.
std::optional<std::size_t> least_wanted(const std::vector<TableColumn>& columns) {
  const auto least = std::ranges::max_element(columns, {}, &TableColumn::gives_way);
  if (least == columns.end() || least->gives_way < 2) return std::nullopt;
  return static_cast<std::size_t>(least - columns.begin());
}

// All but the first `count` characters.
std::string_view last_characters(std::string_view text, std::size_t count) {
  const std::size_t length = characters(text);
  while (characters(text) + count > length && !text.empty()) text.remove_prefix(1);
  return text;
}

}  // namespace

std::string fitted_table(const std::vector<TableColumn>& columns, Rows rows, std::size_t width) {
  std::vector<std::size_t> widths;
  for (const TableColumn& each : columns) widths.push_back(each.usual_width);
  const std::string usual = laid_out(rows, widths);
  std::size_t widest = 0;
  for (std::size_t at = 0, end = 0; at < usual.size(); at = end + 1) {
    end = usual.find('\n', at);
    widest = std::max(widest, characters(std::string_view(usual).substr(at, end - at)));
  }
  if (width == 0 || widest <= width) return usual;

  std::vector<TableColumn> kept = columns;
  const auto narrowest = [&] {
    std::vector<std::size_t> least = cell_widths(rows, kept.size());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i].gives_way != 0) least[i] = std::min(least[i], kNarrowest);
    }
    return total(least);
  };
  while (narrowest() > width) {
    const auto least = least_wanted(kept);
    if (!least) break;
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(*least));
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(*least));
  }
  widths = cell_widths(rows, kept.size());
  while (total(widths) > width) {
    std::size_t* largest = nullptr;
    for (std::size_t i = 0; i < kept.size(); ++i) {
      if (kept[i].gives_way != 0 && widths[i] > kNarrowest &&
          (largest == nullptr || widths[i] > *largest)) {
        largest = &widths[i];
      }
    }
    if (largest == nullptr) break;
    --*largest;
  }
  for (auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = shortened(row[i], widths[i]);
  }
  for (std::size_t& each : widths) each += kGap;
  return laid_out(rows, widths);
}

std::string fitted_line(std::string_view line, std::size_t width) {
  const std::size_t length = characters(line);
  if (width == 0 || length <= width) return std::string(line);
  constexpr std::string_view kFile = "File \"";
  const std::size_t file = line.find(kFile);
  const std::size_t name = line.rfind('/', line.find('"', file + kFile.size()));
  if (file == std::string_view::npos || name == std::string_view::npos || name < file) {
    return shortened(line, width);
  }
  // The name itself stays.
  const std::size_t begin = file + kFile.size();
  const std::size_t most = name - begin;
  const std::size_t cut = std::min(most, length - width + kLeftOut.size());
  std::string out(line.substr(0, begin));
  out.append(kLeftOut).append(last_characters(line.substr(begin), cut));
  return shortened(out, width);
}

}  // namespace hora::launcher
