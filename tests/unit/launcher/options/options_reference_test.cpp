// SPDX-License-Identifier: Apache-2.0
// The pages that are made from tables in the code are what the code would make. scripts/accept
// writes them.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "launcher/failures/exit_code.h"
#include "launcher/options/option_table.h"
#include "launcher/options/peer_options.h"
#include "launcher/options/usage_text.h"
#include "launcher/plan/worker_environment.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

std::string path_of(const std::string& page) {
  return std::string(HORA_SOURCE_DIR) + "/docs/" + page;
}

std::string read(const std::string& page) {
  std::ifstream file(path_of(page), std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

void expect_page(const std::string& page, const std::string& text) {
  if (std::getenv("HORA_ACCEPT") != nullptr) std::ofstream(path_of(page), std::ios::binary) << text;
  CHECK(read(page) == text);
}

// `page` with `text` between its two marks. A page that is made from several sources names one.
std::string with_generated(const std::string& page, const std::string& text,
                           const std::string& source = "") {
  const std::string old = read(page);
  const std::size_t begin = old.find(": begin -->\n", old.find(source));
  const std::size_t end = old.find("<!-- end -->", begin);
  INFO(page);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  return old.substr(0, begin) + ": begin -->\n" + text + old.substr(end);
}

TEST_CASE("The manual page is that of the option table", "[accept]") {
  expect_page("man/horarun.1", manual_page(HORA_VERSION));
}

TEST_CASE("The reference of the command line is that of the option table", "[accept]") {
  expect_page("reference/cli.md", with_generated("reference/cli.md", option_reference(),
                                                 "launcher/options/option_table.cpp"));
}

TEST_CASE("The synopsis of the command line is that of the list of verbs", "[accept]") {
  expect_page("reference/cli.md",
              with_generated("reference/cli.md", verb_reference(), "launcher/text/verbs.cpp"));
}

TEST_CASE("The reference of other launchers' options is that of their table", "[accept]") {
  expect_page("reference/peer-options.md",
              with_generated("reference/peer-options.md", peer_option_reference()));
}

TEST_CASE("The reference of exit codes is that of the table of failures", "[accept]") {
  expect_page("reference/exit-codes.md",
              with_generated("reference/exit-codes.md", exit_code_reference()));
}

TEST_CASE("The reference of the environment names every variable that a rank is told") {
  const std::string page = read("reference/environment.md");
  for (const std::string_view name : rendezvous::job_variable_names()) {
    INFO(name);
    CHECK(page.find("`" + std::string(name) + "`") != std::string::npos);
  }
}

}  // namespace
}  // namespace hora::launcher
