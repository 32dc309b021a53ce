// SPDX-License-Identifier: Apache-2.0
// What `horarun cache clean` takes away, and what a job that runs anywhere keeps it from taking.
#include "launcher/agent/cache_use.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "launcher/agent/cache_clean.h"
#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/agent/packing.h"

using namespace hora::launcher;
using namespace hora::test;

namespace fs = std::filesystem;

namespace {

struct Cache {
  TemporaryDirectory directory;
  std::string path = directory / "hora";
  PackedBundle bundle = pack({{"bin/tool", "#!/bin/sh\necho tool runs\n"}});
  std::string entry = path + "/" + bundle.name();
  std::vector<std::string> arguments = {"--cache", path, "--parts", bundle.header.hash};

  void ship() {
    AgentDriver agent(arguments);
    send_bundle(agent, bundle);
    agent.run(make_order({"true"}));
    REQUIRE(fs::exists(entry));
  }

  // What was kept, line by line.
  std::string clean() const {
    const auto kept = clean_cache(path, {});
    REQUIRE(kept);
    std::string text;
    for (const std::string& line : *kept) {
      if (!line.starts_with("removed ")) text += line + "\n";
    }
    return text;
  }
};

HostOrder order_of(const std::string& line) {
  auto order = shell_order(line);
  order.prepend_paths = {{"PATH", "@bundle@/bin"}};
  return order;
}

}  // namespace

TEST_CASE("cleaning leaves nothing that is not used") {
  Cache cache;
  cache.ship();
  write_file(cache.path + "/agent-" + sha256_hex("x"), "x");
  write_file(cache.path + "/.verified-" + sha256_hex("x"), "a note");
  write_file(cache.path + "/.verified-" + sha256_hex("y"), "a note");
  CHECK(cache.clean().empty());
  CHECK(!fs::exists(cache.path));
  CHECK(cache.clean().empty());
}

TEST_CASE("cleaning keeps the bundle of a job that runs here, and takes it afterwards") {
  Cache cache;
  cache.ship();
  const std::string other = cache.path + "/" + sha256_hex("of an older version");
  fs::create_directories(other);
  {
    AgentDriver agent(cache.arguments);
    REQUIRE(agent.hello().missing_parts.empty());
    SECTION("before its order") {}
    SECTION("while its ranks run") {
      agent.start(order_of("echo up; exec sleep 1000"));
      agent.wait_for_output(0, "up");
    }
    SECTION("a day old") {
      for (const auto& item : fs::directory_iterator(cache.path)) {
        make_older(item.path(), std::chrono::hours(100));
      }
    }
    const std::string said = cache.clean();
    CHECK(said.find("kept " + cache.entry + ": in use on ") == 0);
    CHECK(fs::exists(cache.entry + "/bin/tool"));
    CHECK(!fs::exists(other));
  }
  CHECK(cache.clean().empty());
  CHECK(!fs::exists(cache.path));
}

TEST_CASE("a shim takes away the mark of an agent that was killed") {
  Cache cache;
  cache.ship();
  AgentDriver agent(cache.arguments);
  REQUIRE(agent.hello().missing_parts.empty());
  ::kill(agent.agent(), SIGKILL);
  REQUIRE(agent.reap_shim());
  CHECK(names_in(cache.path) == std::vector<std::string>{cache.bundle.name()});
}

TEST_CASE("a mark that nobody holds here any more keeps nothing") {
  Cache cache;
  cache.ship();
  AgentDriver agent(cache.arguments);
  REQUIRE(agent.hello().missing_parts.empty());
  REQUIRE(agent.kill_both());
  REQUIRE(names_in(cache.path).size() == 2);
  CHECK(cache.clean().empty());
  CHECK(!fs::exists(cache.path));
}

// A lock of another host, or of another mount, may not be seen here: the mark's age tells.
TEST_CASE("cleaning keeps what a job on another host uses") {
  Cache cache;
  cache.ship();
  const std::string agent = sha256_hex("an agent");
  const std::string program = cache.path + "/agent-" + agent;
  write_file(program, "an agent");
  const std::string mark = cache.path + "/.used-0123456789abcdef-fedcba9876543210-" +
                           agent.substr(0, 16) + "-" + cache.bundle.name().substr(0, 16) +
                           "-far.example";
  fs::create_directories(mark);
  SECTION("made just now") {}
  SECTION("made or renewed hours ago") { make_older(mark, std::chrono::hours(3)); }
  SECTION("by a clock that is ahead") { make_older(mark, std::chrono::hours(-3)); }
  const std::string said = cache.clean();
  CHECK(said.find("kept " + cache.entry + ": in use on far.example") != std::string::npos);
  CHECK(said.find("kept " + program + ": in use on far.example") != std::string::npos);
  CHECK(fs::exists(cache.entry + "/bin/tool"));
  CHECK(fs::exists(program));

  make_older(mark, std::chrono::hours(25));
  CHECK(cache.clean().empty());
  CHECK(!fs::exists(cache.path));
}

TEST_CASE("agents that clean keep their program on other hosts, and nothing else") {
  Cache cache;
  cache.ship();
  const std::string agent = sha256_hex("an agent");
  const std::string program = cache.path + "/agent-" + agent;
  write_file(program, "an agent");
  {
    const auto here = CacheDirectory::open(cache.path);
    REQUIRE(here);
    std::string announced;
    const auto mark =
        UseMark::make(*here, agent, kCleaner, [&](const std::string& path) -> hora::Status {
          announced = path;
          return hora::Ok{};
        });
    REQUIRE(mark);
    SECTION("one is here") {
      CHECK(cache.clean().empty());
      CHECK(names_in(cache.path) == std::vector<std::string>{fs::path(announced).filename()});
    }
    SECTION("one is elsewhere") {
      fs::create_directories(cache.path + "/.used-0123456789abcdef-fedcba9876543210-" +
                             agent.substr(0, 16) + "-" + std::string(kCleaner) + "-far.example");
      CHECK(cache.clean().empty());
      CHECK(fs::exists(program));
      CHECK(!fs::exists(cache.entry));
    }
  }
}

TEST_CASE("an agent whose rank has cleaned takes its mark and the empty directory along") {
  Cache cache;
  fs::create_directories(cache.path);
  AgentDriver agent({"--cache", cache.path, "--cleans-cache"});
  agent.start(shell_order("echo up; exec sleep 1000"));
  agent.wait_for_output(0, "up");
  CHECK(names_in(cache.path).size() == 1);
  agent.send_number(FrameType::kTerminate, 5'000);
  agent.wait_for_goodbye();
  CHECK(!fs::exists(cache.path));
}

// It marks first and looks then; who cleans takes away first, and looks for marks once more.
TEST_CASE("a job that starts while the cache is cleaned has its bundle, or is told to ship it") {
  Cache cache;
  for (int round = 0; round < 60; ++round) {
    if (!fs::exists(cache.entry)) cache.ship();
    std::thread cleaner([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round % 20 * 300));
      (void)clean_cache(cache.path, {});
    });
    AgentDriver agent(cache.arguments);
    const bool have = agent.hello().missing_parts.empty();
    cleaner.join();
    if (!have) send_bundle(agent, cache.bundle);
    agent.run(order_of("exec tool"));
    CHECK(agent.output[{0, 1}] == "tool runs\n");
  }
  CHECK(names_in(cache.path) == std::vector<std::string>{cache.bundle.name()});
}

// The same, closer: what was there behind the mark is there behind the cleaning.
TEST_CASE("who looks behind his mark has what he saw") {
  const Cache cache;
  int seen = 0;
  for (int round = 0; round < 2'000; ++round) {
    fs::create_directories(cache.entry);
    const auto here = CacheDirectory::open(cache.path);
    REQUIRE(here);
    std::atomic<bool> go{false};
    std::thread cleaner([&] {
      while (!go) std::this_thread::yield();
      (void)clean_cache(cache.path, {});
    });
    go = true;
    for (int wait = 0; wait < round % 50 * 20; ++wait) (void)go.load();
    const auto mark = UseMark::make(*here, "", cache.bundle.name(),
                                    [](const std::string&) -> hora::Status { return hora::Ok{}; });
    const bool is_there = mark && fs::exists(cache.entry);
    cleaner.join();
    if (!is_there) continue;
    ++seen;
    REQUIRE(fs::exists(cache.entry));
  }
  CHECK(seen > 0);
}
