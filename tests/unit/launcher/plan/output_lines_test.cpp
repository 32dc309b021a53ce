// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/output_lines.h"

#include <string>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

// Saturday, 21 November 2026, 02:44:46.007.
LocalTime some_time() {
  LocalTime time;
  time.parts.tm_wday = 6;
  time.parts.tm_mon = 10;
  time.parts.tm_mday = 21;
  time.parts.tm_hour = 2;
  time.parts.tm_min = 44;
  time.parts.tm_sec = 46;
  time.parts.tm_year = 126;
  time.milliseconds = 7;
  return time;
}

std::string filled(std::string_view text) {
  return LinePrefix::parse(text, "--output-prefix")->fill({13, 5, "node2"}, "stderr", some_time());
}

std::string problem(std::string_view text) {
  return LinePrefix::parse(text, "--output-prefix").error().message;
}

TEST_CASE("A prefix is text with fields") {
  CHECK(filled("{rank}@{host} {time} ") == "13@node2 02:44:46.007 ");
  CHECK(filled("{local_rank}/{stream}|{date}") == "5/stderr|2026-11-21");
  CHECK(filled("{{{rank}}}") == "{13}");
  CHECK(filled("\t: ") == "\t: ");
}

TEST_CASE("The usual prefix is that of horovodrun") {
  const auto usual = [](bool with_timestamp) {
    return LinePrefix::usual(with_timestamp).fill({3}, "stdout", some_time());
  };
  CHECK(usual(false) == "[3]<stdout>:");
  CHECK(usual(true) == "Sat Nov 21 02:44:46 2026[3]<stdout>:");
  CHECK(filled("{timestamp}[{rank}]<{stream}>:") ==
        LinePrefix::usual(true).fill({13}, "stderr", some_time()));
  CHECK_FALSE(LinePrefix::usual(false).has_time());
  CHECK(LinePrefix::usual(true).has_time());
  CHECK(LinePrefix().is_empty());
}

TEST_CASE("A mistake in a prefix is an error that names the fields") {
  CHECK(problem("{rank} {hots}")
            .find("column 8: unknown field; the fields are {rank}, "
                  "{local_rank}, {host}, {stream}, {date}, {time}, "
                  "{timestamp}") != std::string::npos);
  CHECK(problem("{rank").find("column 1: '{' without its pair") != std::string::npos);
  CHECK(problem("a}").find("column 2: '}' without its pair") != std::string::npos);
  CHECK(problem("{}").find("unknown field") != std::string::npos);
  CHECK(problem("a\nb").find("line break") != std::string::npos);
}

TEST_CASE("Lines are shown by what is found in them") {
  const LineFilter none = *LineFilter::parse({}, {});
  CHECK((none.shows_all() && none.shows("") && none.shows("x")));
  const LineFilter some = *LineFilter::parse({"^epoch", "loss"}, {"nan|inf"});
  CHECK((some.shows("epoch 1") && some.shows("the loss") && !some.shows("an epoch")));
  CHECK((!some.shows("loss nan") && !some.shows("epoch 1: inf") && !some.shows("")));
  CHECK(some.shows(std::string_view("a\0loss", 6)));
  // Only up to its end.
  CHECK_FALSE(some.shows(std::string_view("epo loss").substr(0, 4)));
}

TEST_CASE("An expression that is none is an error that names it") {
  CHECK(LineFilter::parse({"a(b"}, {}).error().message.starts_with("--show-lines: 'a(b': "));
  CHECK(LineFilter::parse({}, {"["}).error().message.starts_with("--hide-lines: '[': "));
  CHECK(LineFilter::parse({"(a)\\1"}, {}).error().message.find("back-references") !=
        std::string::npos);
  CHECK(LineFilter::parse({"\\\\1"}, {}).has_value());  // a backslash, and 1
}

}  // namespace
}  // namespace hora::launcher
