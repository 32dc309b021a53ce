// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/usage_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "launcher/options/option_table.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("Help fits a screen and names every common option") {
  const std::string text = parsed<ShowText>({"--help"}).text;
  CHECK(std::count(text.begin(), text.end(), '\n') <= 80);
  const std::string all = parsed<ShowText>({"--help=all"}).text;
  const std::string man = manual_page("0.1.0");
  for (const OptionRow& row : option_table()) {
    const std::string name(long_name(row));
    INFO(name);
    CHECK(option_reference().find("`" + name + "`") != std::string::npos);
    if ((row.verbs & kVerbLaunch) == 0 || row.has(kHidden)) continue;
    CHECK(all.find(std::string(shown_name(row))) != std::string::npos);
    if (row.has(kCommon)) CHECK(text.find(std::string(shown_name(row))) != std::string::npos);
    std::string in_roff;
    for (const char c : name) in_roff += c == '-' ? "\\-" : std::string(1, c);
    CHECK(man.find(in_roff) != std::string::npos);
  }
  CHECK(parsed<ShowText>({"-np", "2", "-h"}).text == text);
  CHECK(parsed<ShowText>({"cache", "--help"}).text.find("cache ls") != std::string::npos);
  CHECK(parsed<ShowText>({"rendezvous", "-h"}).text.find("--token-file") != std::string::npos);
  CHECK(job_of({"-np", "2", "x", "--help"}).command.size() == 2);
}

TEST_CASE("Every help fits a terminal of 80 columns") {
  std::vector<std::vector<std::string>> all{{"--help"}, {"--help=all"}};
  for (const char* verb : {"k8s", "doctor", "cache", "rendezvous"}) {
    all.push_back({verb, "--help"});
    all.push_back({verb, "--help=all"});
  }
  for (const char* verb : {"explain", "timeline", "completion", "bundle-report"}) {
    all.push_back({verb, "--help"});
  }
  for (const auto& words : all) {
    const std::string text = parsed<ShowText>(words).text;
    for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
      end = text.find('\n', at);
      INFO(text.substr(at, end - at));
      CHECK(end - at <= 80);
    }
  }
}

TEST_CASE("Help says what an option does for its verb") {
  CHECK(help_text(kVerbDoctor, false).find("(default: 5s)") != std::string::npos);
  CHECK(help_text(kVerbKubernetes, false).find("(default: 600s)") != std::string::npos);
  CHECK(help_text(kVerbKubernetes, true).find("every slot of the given") == std::string::npos);
  CHECK(help_text(kVerbLaunch, false).find("HOROVOD_START_TIMEOUT or 30s") != std::string::npos);
}

}  // namespace
}  // namespace hora::launcher
