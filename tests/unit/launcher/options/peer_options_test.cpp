// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/peer_options.h"

#include "launcher/options/option_spelling.h"
#include "launcher/options/option_table.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

std::string error_of(const std::string& word) {
  const auto spelled = read_spelling({word, "value", "program"}, kVerbLaunch);
  return spelled ? "" : spelled.error().message;
}

// An option that horarun itself took under this name, or as an abbreviation, would never be
// answered from the table.
TEST_CASE("Every row of the table answers whoever types its name") {
  for (const PeerOption& option : peer_options()) {
    const std::string name(option.name);
    CHECK(error_of(name) == "unknown option '" + name + "'; " + peer_answer_text(option));
    if (name.size() > 2) CHECK(error_of(name + "=value") == error_of(name));
  }
  CHECK(peer_options().size() >= 150);
}

TEST_CASE("What horarun calls an option is an option of horarun") {
  for (const PeerOption& option : peer_options()) {
    if (option.kind != PeerAnswer::kCalled) continue;
    INFO(option.name);
    CHECK(find_option(option.answer.substr(0, option.answer.find(' ')), kVerbLaunch) != nullptr);
  }
}

TEST_CASE("Long names are known with one dash and two, with dashes and underscores") {
  for (const char* name : {"--bind-to", "-bind-to", "--bind_to"}) {
    CHECK(error_of(name) == "unknown option '" + std::string(name) +
                                "'; horarun calls this --bind core|l3|socket|numa|none");
  }
  CHECK(find_peer_option("--genv") == find_peer_option("-genv"));
  CHECK(find_peer_option("--D") == nullptr);
  CHECK(find_peer_option("--bind-to-nothing") == nullptr);
  CHECK(find_peer_option("--") == nullptr);
}

TEST_CASE("Abbreviations of horovodrun's options win over other launchers' options") {
  const auto spelled = read_spelling({"--output", "logs", "program"}, kVerbLaunch);
  REQUIRE(spelled);
  CHECK(long_name(*spelled->options.front().row) == "--output-filename");
}

// "-n" and "-p" take glued values, "-i" any.
TEST_CASE("A peer's name is not the value of a short option") {
  CHECK(error_of("-iface").find("--network-interfaces") != std::string::npos);
  CHECK(error_of("-prepend-rank").find("not needed") != std::string::npos);
  CHECK(error_of("-npernode").find("--nproc-per-node") != std::string::npos);
}

}  // namespace
}  // namespace hora::launcher
