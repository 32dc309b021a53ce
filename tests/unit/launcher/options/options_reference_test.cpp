// SPDX-License-Identifier: Apache-2.0
// The pages that are made from tables in the code are what the code would make. scripts/accept
// writes them.
#include "launcher/failures/failure_code.h"
#include "launcher/options/option_table.h"
#include "launcher/options/other_launchers.h"
#include "launcher/options/usage_text.h"
#include "launcher/plan/worker_environment.h"
#include "tests/support/catch.h"
#include "tests/support/generated_page.h"

namespace hora::launcher {
namespace {

using test::expect_in_page;
using test::expect_page;
using test::read_page;

TEST_CASE("The manual page is that of the option table", "[accept]") {
  expect_page("man/horarun.1", manual_page(HORA_VERSION));
}

TEST_CASE("The reference of the command line is that of the option table", "[accept]") {
  expect_in_page("reference/cli.md", option_reference(), "launcher/options/option_table.cpp");
}

TEST_CASE("The synopsis of the command line is that of the list of verbs", "[accept]") {
  expect_in_page("reference/cli.md", verb_reference(), "launcher/text/text.cpp");
}

TEST_CASE("The reference of other launchers' options is that of their table", "[accept]") {
  expect_in_page("reference/peer-options.md", peer_option_reference());
}

TEST_CASE("The reference of exit codes is that of the table of failures", "[accept]") {
  expect_in_page("reference/exit-codes.md", exit_code_reference());
}

TEST_CASE("The reference of the environment names every variable that a rank gets") {
  const std::string page = read_page("reference/environment.md");
  for (const std::string_view name : rendezvous::job_variable_names()) {
    INFO(name);
    CHECK(page.find("`" + std::string(name) + "`") != std::string::npos);
  }
}

}  // namespace
}  // namespace hora::launcher
