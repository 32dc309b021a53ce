// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/bundle.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace hora::launcher {
namespace {

namespace fs = std::filesystem;

// A share/hora whose builds consist of what find_installation() looks at.
class Share {
 public:
  void add(const std::string& machine, bool with_tls = true,
           const std::string& version = HORA_VERSION) const {
    fs::create_directories(path_ / machine / "agent");
    std::ofstream(agent(machine)) << "an agent";
    fs::permissions(agent(machine), fs::perms::owner_all);
    nlohmann::json manifest = {{"version", version},
                               {"agent_sha256", "a-" + machine},
                               {"parts", {{"core", "c-" + machine}}},
                               {"least_glibc", "2.28"}};
    if (with_tls) manifest["parts"]["tls"] = "t-" + machine;
    std::ofstream(path_ / machine / "manifest.json") << manifest;
  }
  fs::path agent(const std::string& machine) const {
    return path_ / machine / "agent" / "hora-agent";
  }
  fs::path path() const { return path_; }

 private:
  test::TemporaryDirectory root_;
  const fs::path path_ = root_.path();
};

TEST_CASE("an installation has this machine's build first, and those for others") {
  const Share share;
  share.add("vax");
  share.add("alpha");
  share.add("pdp11");
  fs::create_directory(share.path() / "bundle");  // of an older layout
  const auto found = read_installation(share.path(), "pdp11");
  REQUIRE(found);
  CHECK(found->machines_text() == "pdp11, alpha, vax");
  CHECK(found->own().agent_sha256 == "a-pdp11");
  CHECK(found->find("vax")->part_hashes.at("core") == "c-vax");
  CHECK(found->find("vax")->agent_path == share.agent("vax"));
  CHECK(found->find("vax")->bundle_directory == share.path() / "vax" / "bundle");
  CHECK(found->find("") == &found->own());
  CHECK(found->find("cray") == nullptr);
}

TEST_CASE("a faulty build for other hosts does not fail the installation") {
  const Share share;
  share.add("pdp11");
  share.add("vax");
  std::string words;
  SECTION("of another version") {
    share.add("vax", true, "0.0.1");
    words = "Hora 0.0.1";
  }
  SECTION("without its agent") {
    fs::remove(share.agent("vax"));
    words = "hora-agent";
  }
  SECTION("with a manifest that is none") {
    std::ofstream(share.path() / "vax" / "manifest.json") << "{";
    words = "damaged";
  }
  const auto found = read_installation(share.path(), "pdp11");
  REQUIRE(found);
  CHECK(found->find("vax") == nullptr);
  CHECK(found->machines_text().find("pdp11, vax (") == 0);
  CHECK(found->machines_text().find(words) != std::string::npos);
  // The launcher's own is needed in any case.
  CHECK_FALSE(read_installation(share.path(), "vax"));
}

TEST_CASE("an installation without a build for this machine is incomplete") {
  const Share share;
  share.add("vax");
  const auto found = read_installation(share.path(), "pdp11");
  REQUIRE_FALSE(found);
  CHECK(found.error().message.find("incomplete") != std::string::npos);
  CHECK(found.error().message.find("pdp11/manifest.json") != std::string::npos);
}

bool ships(const Build* build, const std::string& hash) {
  const auto& parts = build->needed_parts;
  return std::any_of(parts.begin(), parts.end(),
                     [&hash](const NeededPart& part) { return part.hash == hash; });
}

TEST_CASE("each build ships its own parts, and one that lacks what the job asks for is left out") {
  const Share share;
  share.add("pdp11");
  share.add("vax");
  share.add("alpha", /*with_tls=*/false);
  JobSpec spec;
  auto found = with_parts_for_job(*read_installation(share.path(), "pdp11"), spec, {});
  REQUIRE(found);
  CHECK(ships(found->find("alpha"), "c-alpha"));
  CHECK_FALSE(ships(found->find("vax"), "t-vax"));
  spec.rendezvous_tls = true;
  found = with_parts_for_job(*read_installation(share.path(), "pdp11"), spec, {});
  REQUIRE(found);
  CHECK(ships(&found->own(), "t-pdp11"));
  CHECK(ships(found->find("vax"), "t-vax"));
  CHECK_FALSE(ships(found->find("vax"), "t-pdp11"));
  CHECK(found->find("alpha") == nullptr);
  CHECK(found->machines_text() == "pdp11, alpha (built without OpenSSL), vax");
  CHECK_FALSE(with_parts_for_job(*read_installation(share.path(), "alpha"), spec, {}));
}

}  // namespace
}  // namespace hora::launcher
