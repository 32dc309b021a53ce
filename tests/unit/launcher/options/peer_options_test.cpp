// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/peer_options.h"

#include "launcher/options/option_check.h"
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
  CHECK(peer_options().size() >= 350);
}

TEST_CASE("What horarun calls an option is an option of horarun") {
  for (const PeerOption& option : peer_options()) {
    if (option.kind != PeerAnswer::kCalled) continue;
    INFO(option.name);
    CHECK(find_option(option.answer.substr(0, option.answer.find(' ')), kVerbLaunch) != nullptr);
  }
}

TEST_CASE("Long names are known with one dash and two, with dashes and underscores") {
  for (const char* name : {"--cpu-bind", "-cpu-bind", "--cpu_bind"}) {
    CHECK(
        error_of(name) ==
        "unknown option '" + std::string(name) +
            "'; horarun calls this --bind core|l3|socket|numa|none (map_cpu:0,2 is cpu-list:0:2)");
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

TEST_CASE("Long names of our options are known with one dash, as mpirun and Hydra write them") {
  for (const char* name : {"--bind-to", "--map-by", "--rankfile", "--tag-output", "--timeout",
                           "--merge-stderr-to-stdout", "--output-filename", "--stdin", "--verbose",
                           "--version", "--wdir", "--hosts", "--hostfile"}) {
    INFO(name);
    const auto once = read_spelling({name + 1, "value", "program"}, kVerbLaunch);
    REQUIRE(once);
    CHECK(once->options.front().row == find_option(name, kVerbLaunch));
    CHECK(once->options.front().typed == name + 1);
  }
  // Hydra's has two values, so it is not our --env.
  CHECK(error_of("-env").find("-x NAME=VALUE") != std::string::npos);
  // One letter behind a dash is a short option, and nobody has three dashes.
  CHECK(error_of("---bind-to").find("unknown option") == 0);
}

TEST_CASE("Values of other launchers are answered with what horarun has instead") {
  const auto answer = [](std::vector<std::string> words) {
    words.emplace_back("program");
    const auto spelled = read_spelling(words, kVerbLaunch);
    if (!spelled) return spelled.error().message;
    const auto values = check_options(*spelled, kVerbLaunch);
    return values ? std::string() : values.error().message;
  };
  CHECK(answer({"--mpi=pmix"}) ==
        "--mpi takes no value, found 'pmix'; horarun calls this --pmi pmix");
  CHECK(answer({"--mpi=other"}) == "--mpi takes no value, found 'other'");
  const std::string expected = "--map-by: expected slot, node or rankfile:file=FILE, found ";
  for (const auto& [value, ours] :
       {std::pair{"ppr:2:node", "-N 2"},
        {"ppr:2:socket", "-N 2 with the ranks of a whole host, and --bind socket"},
        {"core", "--bind core"},
        {"socket:PE=2", "--bind socket"},
        {"numa", "--bind numa"},
        {"l3cache", "--bind l3"},
        {"slot:PE=4",
         "--map-by slot --bind core, which shares the cores of a host among its ranks"},
        {"node:OVERSUBSCRIBE", "--map-by node; slots may be more than cores"}}) {
    CHECK(answer({"--map-by", value}) == expected + "'" + value + "'; horarun calls this " + ours);
  }
  CHECK(answer({"--map-by", "mars"}) == expected + "'mars'");
  CHECK(answer({"--bind-to", "l3cache"}).ends_with("horarun calls this --bind l3"));
  CHECK(answer({"--bind-to", "core"}).empty());
}

// "-n" and "-p" take glued values, "-i" any.
TEST_CASE("A peer's name is not the value of a short option") {
  CHECK(error_of("-iface").find("--network-interfaces") != std::string::npos);
  CHECK(error_of("-prepend-rank").find("not needed") != std::string::npos);
  CHECK(error_of("-print-rank-map").find("--dry-run") != std::string::npos);
  CHECK(error_of("-ilp64").find("not needed") != std::string::npos);
  CHECK(error_of("--cpu").find("ACCELERATE_USE_CPU") != std::string::npos);
  CHECK(error_of("-npernode").find("--nproc-per-node") != std::string::npos);
}

}  // namespace
}  // namespace hora::launcher
