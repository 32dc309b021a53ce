// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/transport.h"

#include <set>
#include <string>

#include "launcher/options/option_table.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/support/generated_page.h"

namespace hora::launcher {
namespace {

TEST_CASE("every transport can be found by its name, except the one for this machine") {
  std::set<std::string_view> names;
  for (const TransportDescriptor* each : transports()) {
    INFO(each->name);
    CHECK(names.insert(each->name).second);
    CHECK(each->create != nullptr);
    CHECK(find_transport(each->name) == (each->remote ? each : nullptr));
  }
  CHECK(find_transport("auto") == nullptr);
  CHECK(find_transport(JobSpec{}.transport) != nullptr);
  CHECK(local_transport().name == "local");
  CHECK(command_transport().name == "command");
}

TEST_CASE("--transport takes the names of the registry") {
  std::string names = "auto";
  for (const TransportDescriptor* each : transports()) {
    if (each->remote) names += "|" + std::string(each->name);
  }
  CHECK(find_option("--transport", kVerbLaunch)->metavar == names);
}

TEST_CASE("a transport names options that exist") {
  for (const TransportDescriptor* each : transports()) {
    for (const std::string_view option : split(each->options, ' ')) {
      INFO(each->name << " " << option);
      CHECK((option.empty() || find_option(option, kVerbLaunch) != nullptr));
    }
  }
}

// scripts/accept writes the table.
TEST_CASE("the reference of transports has the table of the registry", "[accept]") {
  test::expect_in_page("reference/transports.md", transport_reference());
}

}  // namespace
}  // namespace hora::launcher
