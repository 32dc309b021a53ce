// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/registry.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "launcher/options/option_table.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

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
  const std::string path = std::string(HORA_SOURCE_DIR) + "/docs/reference/transports.md";
  std::ifstream file(path, std::ios::binary);
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::size_t begin = page.find(": begin -->\n");
  const std::size_t end = page.find("<!-- end -->");
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  const std::string expected =
      page.substr(0, begin) + ": begin -->\n" + transport_reference() + page.substr(end);
  if (std::getenv("HORA_ACCEPT") != nullptr) {
    std::ofstream(path, std::ios::binary) << expected;
  } else {
    CHECK(page == expected);
  }
}

}  // namespace
}  // namespace hora::launcher
