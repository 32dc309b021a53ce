// SPDX-License-Identifier: Apache-2.0
#include "tests/support/transports/simulated/rank_script.h"

#include <algorithm>
#include <charconv>

namespace hora::test {

namespace {

template <typename Number>
bool read_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

bool set_option(RankScript& script, std::string_view name, std::string_view value) {
  if (name == "--for") {
    std::int64_t ms = 0;
    if (!read_number(value, ms)) return false;
    script.runs_for = Milliseconds(ms);
    return true;
  }
  if (name == "--output") return read_number(value, script.output_bytes);
  if (name == "--line") return read_number(value, script.line_bytes) && script.line_bytes >= 24;
  if (name == "--exit") {
    const std::size_t colon = value.find(':');
    return colon != std::string_view::npos &&
           read_number(value.substr(0, colon), script.failing_rank) &&
           read_number(value.substr(colon + 1), script.failing_code);
  }
  return false;
}

}  // namespace

Result<RankScript> parse_rank_script(const std::vector<std::string>& argv) {
  RankScript script;
  for (std::size_t i = 1; i < argv.size(); i += 2) {
    if (i + 1 == argv.size() || !set_option(script, argv[i], argv[i + 1])) {
      return make_error(ErrorCode::kUsage, "simulated-rank does not know: " + argv[i]);
    }
  }
  return script;
}

std::string output_of(const RankScript& script, int rank, std::size_t offset, std::size_t size) {
  const std::size_t width = script.line_bytes;
  std::string lines;
  for (std::size_t line = offset / width; lines.size() < offset % width + size; ++line) {
    std::string text = "r" + std::to_string(rank) + " l" + std::to_string(line) + " ";
    text.resize(width - 1, '.');
    lines += text + "\n";
  }
  return lines.substr(offset % width, size);
}

}  // namespace hora::test
