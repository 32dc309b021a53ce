// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/output_lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <utility>

#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

// The C locale's, whatever LC_TIME says.
std::string timestamp(const LocalTime& time) {
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::tm& at = time.parts;
  return formatted("%s %s %2d %02d:%02d:%02d %d",
                   kDays[static_cast<std::size_t>(std::clamp(at.tm_wday, 0, 6))],
                   kMonths[static_cast<std::size_t>(std::clamp(at.tm_mon, 0, 11))], at.tm_mday,
                   at.tm_hour, at.tm_min, at.tm_sec, at.tm_year + 1900);
}

std::string date(const LocalTime& time) {
  const std::tm& at = time.parts;
  return formatted("%04d-%02d-%02d", at.tm_year + 1900, at.tm_mon + 1, at.tm_mday);
}

std::string time_of_day(const LocalTime& time) {
  const std::tm& at = time.parts;
  return formatted("%02d:%02d:%02d.%03d", at.tm_hour, at.tm_min, at.tm_sec, time.milliseconds);
}

}  // namespace

struct LineField {
  std::string_view name;
  bool of_time;
  std::string (*fill)(const RankPlace& place, std::string_view stream, const LocalTime& time);
};

namespace {

// clang-format off
constexpr std::array<LineField, 7> kFields{{
    {"rank", false, [](const RankPlace& place, std::string_view, const LocalTime&) { return std::to_string(place.rank); }},
    {"local_rank", false, [](const RankPlace& place, std::string_view, const LocalTime&) { return std::to_string(place.local_rank); }},
    {"host", false, [](const RankPlace& place, std::string_view, const LocalTime&) { return place.host; }},
    {"stream", false, [](const RankPlace&, std::string_view stream, const LocalTime&) { return std::string(stream); }},
    {"date", true, [](const RankPlace&, std::string_view, const LocalTime& now) { return date(now); }},
    {"time", true, [](const RankPlace&, std::string_view, const LocalTime& now) { return time_of_day(now); }},
    {"timestamp", true, [](const RankPlace&, std::string_view, const LocalTime& now) { return timestamp(now); }},
}};
// clang-format on

const LineField* find_field(std::string_view name) {
  const auto found = std::find_if(kFields.begin(), kFields.end(),
                                  [name](const LineField& each) { return each.name == name; });
  return found == kFields.end() ? nullptr : &*found;
}

std::string known_fields() {
  std::string out;
  for (const LineField& each : kFields) {
    out += (out.empty() ? "{" : ", {") + std::string(each.name) + "}";
  }
  return out;
}

}  // namespace

// A brace that stands for itself is written twice.
Result<LinePrefix> LinePrefix::parse(std::string_view text, std::string_view origin) {
  const SpecLine line{origin, text, 0};
  LinePrefix out;
  std::string literal;
  const auto end_literal = [&] {
    if (!literal.empty()) out.pieces_.push_back({std::exchange(literal, {})});
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char byte = text[at];
    const bool is_brace = byte == '{' || byte == '}';
    if (byte == '\n' || byte == '\r') return spec_error(line, at, "a prefix has no line break");
    if (!is_brace || text.substr(at + 1, 1) == text.substr(at, 1)) {
      literal += byte;
      at += is_brace ? 1 : 0;
      continue;
    }
    const std::size_t end = text.find('}', at);
    if (byte == '}' || end == std::string_view::npos) {
      return spec_error(line, at,
                        describe_byte(byte) + " without its pair; write it twice to print it");
    }
    const LineField* const field = find_field(text.substr(at + 1, end - at - 1));
    if (field == nullptr) {
      return spec_error(line, at, "unknown field; the fields are " + known_fields());
    }
    end_literal();
    out.pieces_.push_back({{}, field});
    at = end;
  }
  end_literal();
  return out;
}

LinePrefix LinePrefix::usual(bool with_timestamp) {
  LinePrefix out;
  if (with_timestamp) out.pieces_.push_back({{}, find_field("timestamp")});
  out.pieces_.push_back({"["});
  out.pieces_.push_back({{}, find_field("rank")});
  out.pieces_.push_back({"]<"});
  out.pieces_.push_back({{}, find_field("stream")});
  out.pieces_.push_back({">:"});
  return out;
}

bool LinePrefix::has_time() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) {
    return piece.field != nullptr && piece.field->of_time;
  });
}

std::string LinePrefix::fill(const RankPlace& place, std::string_view stream,
                             const LocalTime& time) const {
  std::string out;
  for (const auto& [text, field] : pieces_) {
    out += field == nullptr ? text : field->fill(place, stream, time);
  }
  return out;
}

Result<std::vector<LineFilter::Expression>> LineFilter::compile(
    const std::vector<std::string>& texts, std::string_view option) {
  std::vector<Expression> out;
  for (const std::string& text : texts) {
    const auto wrong = [&](const std::string& what) {
      return usage(std::string(option) + ": " + quote(text) + ": " + what +
                   " (an extended regular expression, as for grep -E)");
    };
    // They take time without bounds, on the thread that has to answer the hosts.
    for (std::size_t at = 0; at + 1 < text.size(); ++at) {
      if (text[at] != '\\') continue;
      if (std::isdigit(static_cast<unsigned char>(text[++at])) != 0) {
        return wrong("back-references are not supported");
      }
    }
    auto expression = std::make_unique<regex_t>();
    if (const int code = ::regcomp(expression.get(), text.c_str(), REG_EXTENDED | REG_NOSUB)) {
      std::array<char, 256> reason{};
      ::regerror(code, expression.get(), reason.data(), reason.size());
      return wrong(reason.data());
    }
    out.push_back(Expression(expression.release(), [](const regex_t* each) {
      ::regfree(const_cast<regex_t*>(each));
      delete each;
    }));
  }
  return out;
}

Result<LineFilter> LineFilter::parse(const std::vector<std::string>& show,
                                     const std::vector<std::string>& hide) {
  auto shown = compile(show, "--show-lines");
  if (!shown) return std::move(shown).error();
  auto hidden = compile(hide, "--hide-lines");
  if (!hidden) return std::move(hidden).error();
  LineFilter out;
  out.show_ = std::move(*shown);
  out.hide_ = std::move(*hidden);
  return out;
}

bool LineFilter::shows(std::string_view line) const {
  const auto is_found = [line](const Expression& expression) {
    // By length: a line may have a NUL.
    regmatch_t range{0, static_cast<regoff_t>(line.size())};
    return ::regexec(expression.get(), line.data(), 1, &range, REG_STARTEND) == 0;
  };
  return (show_.empty() || std::any_of(show_.begin(), show_.end(), is_found)) &&
         std::none_of(hide_.begin(), hide_.end(), is_found);
}

}  // namespace hora::launcher
