// SPDX-License-Identifier: Apache-2.0
// Lines of the ranks' output: what stands before each, and which of them the console shows.  [pure]
#pragma once

#include <regex.h>

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// The place of the rank that wrote a line.
struct RankPlace {
  int rank = 0;
  int local_rank = 0;
  std::string host = {};
};

struct LocalTime {
  std::tm parts{};
  int milliseconds = 0;
};

struct LineField;

// --output-prefix: text with fields, "{rank}@{host} {time} ". "{{" and "}}" are braces.
class LinePrefix {
 public:
  LinePrefix() = default;  // lines have none
  // Errors (kUsage) say the column, and which fields there are.
  static Result<LinePrefix> parse(std::string_view text, std::string_view origin);
  // What horovodrun and mpirun print: "[3]<stdout>:", after the time if that is wanted.
  static LinePrefix usual(bool with_timestamp);

  bool is_empty() const { return pieces_.empty(); }
  bool has_time() const;
  // As long at any time as at any other. `stream` is "stdout" or "stderr".
  std::string fill(const RankPlace& place, std::string_view stream, const LocalTime& time) const;

 private:
  struct Piece {
    std::string text;
    const LineField* field = nullptr;  // instead of the text
  };
  std::vector<Piece> pieces_;
};

// --show-lines and --hide-lines: extended regular expressions (POSIX), found anywhere in the line.
class LineFilter {
 public:
  // Errors (kUsage) name the option and the expression.
  static Result<LineFilter> parse(const std::vector<std::string>& show,
                                  const std::vector<std::string>& hide);

  // `line` without its end.
  bool shows(std::string_view line) const;
  bool shows_all() const { return show_.empty() && hide_.empty(); }

 private:
  using Expression = std::shared_ptr<const regex_t>;
  static Result<std::vector<Expression>> compile(const std::vector<std::string>& texts,
                                                 std::string_view option);

  std::vector<Expression> show_;  // one of these, if there are any
  std::vector<Expression> hide_;  // and none of these
};

}  // namespace hora::launcher
