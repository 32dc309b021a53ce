// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/cache_clean.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "launcher/store/bundle_cache.h"
#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/agent/packing.h"

// What `horarun cache clean` takes away, and what a job that runs anywhere keeps it from taking.

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

TEST_CASE("a mark that no process here holds any more keeps nothing") {
  Cache cache;
  cache.ship();
  AgentDriver agent(cache.arguments);
  REQUIRE(agent.hello().missing_parts.empty());
  REQUIRE(agent.kill_both());
  REQUIRE(names_in(cache.path).size() == 2);
  CHECK(cache.clean().empty());
  CHECK(!fs::exists(cache.path));
}

// A lock of another host, or of another mount, may not be seen here: the mark's age decides.
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

// It marks first and looks then; a cleaner takes away first, and looks for marks once more.
TEST_CASE("a job that starts while the cache is cleaned has its bundle, or ships it") {
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

// The same, closer: files that existed after the mark exist after the cleaning.
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

// What `horarun cache` shows and limits, and what the end of a job limits.

using namespace hora::launcher;
using namespace hora::test;

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::hours kDay{24};

// A cache into which an agent has put bundles.
struct UsedCache {
  TemporaryDirectory directory;
  std::string path = directory / "hora";

  std::vector<std::string> arguments(const PackedBundle& bundle) const {
    return {"--cache", path, "--parts", bundle.header.hash};
  }
  std::string entry(const PackedBundle& bundle) const { return path + "/" + bundle.name(); }

  // Runs a job whose agent gets these words as well.
  void run_job(const PackedBundle& bundle, const std::vector<std::string>& more = {}) const {
    auto words = arguments(bundle);
    words.insert(words.end(), more.begin(), more.end());
    AgentDriver agent(words);
    if (!agent.hello().missing_parts.empty()) send_bundle(agent, bundle);
    agent.run(make_order({"true"}));
    REQUIRE(fs::exists(entry(bundle)));
  }
};

PackedBundle bundle_of(const std::string& content) { return pack({{"bin/tool", content}}); }

std::string joined(const hora::Result<std::vector<std::string>>& lines) {
  REQUIRE(lines);
  std::string text;
  for (const std::string& line : *lines) text += line + "\n";
  return text;
}

CleanRequest older_than(std::chrono::seconds age) {
  return {{age, std::nullopt}, false, false, {}};
}
CleanRequest at_most(std::uint64_t bytes) { return {{std::nullopt, bytes}, false, false, {}}; }

}  // namespace

TEST_CASE("cleaning by age and by size takes what was used longest ago") {
  const UsedCache cache;
  const auto old = bundle_of(std::string(3000, 'o'));
  const auto recent = bundle_of(std::string(2000, 'r'));
  cache.run_job(old);
  cache.run_job(recent);
  make_older(cache.entry(old), 40 * kDay);
  make_older(cache.entry(recent), 3 * kDay);
  SECTION("by age") {
    CHECK(joined(clean_cache(cache.path, older_than(41 * kDay))).empty());
    CHECK(fs::exists(cache.entry(old)));
    CHECK(joined(clean_cache(cache.path, older_than(30 * kDay))) ==
          "removed 1 entry of " + cache.path + ": 2.9K\n");
    CHECK(!fs::exists(cache.entry(old)));
    CHECK(fs::exists(cache.entry(recent)));
  }
  SECTION("by size") {
    CHECK(joined(clean_cache(cache.path, at_most(5000))).empty());
    CHECK(fs::exists(cache.entry(old)));
    CHECK(joined(clean_cache(cache.path, at_most(4999))) ==
          "removed 1 entry of " + cache.path + ": 2.9K\n");
    CHECK(!fs::exists(cache.entry(old)));
    CHECK(fs::exists(cache.entry(recent)));
  }
  SECTION("a dry run prints and changes nothing") {
    CleanRequest request = older_than(30 * kDay);
    request.dry_run = true;
    write_file(cache.path + "/.verified-" + sha256_hex("gone"), "a note");
    const auto before = names_in(cache.path);
    CHECK(joined(clean_cache(cache.path, request)) ==
          "would remove " + cache.entry(old) + ": 2.9K, used 40 days ago\n");
    CHECK(names_in(cache.path) == before);
  }
  SECTION("not after the deadline") {
    CleanRequest request = older_than(30 * kDay);
    request.deadline = hora::Clock::now();
    CHECK(joined(clean_cache(cache.path, request)).empty());
    CHECK(fs::exists(cache.entry(old)));
  }
}

TEST_CASE("a list shows size, last use and user") {
  const UsedCache cache;
  const auto old = bundle_of(std::string(3000, 'o'));
  const auto recent = bundle_of(std::string(2048, 'r'));
  CHECK(joined(list_cache(cache.path)).empty());
  cache.run_job(old);
  cache.run_job(recent);
  make_older(cache.entry(old), 40 * kDay);
  make_older(cache.entry(recent), std::chrono::hours(3));
  CHECK(joined(list_cache(cache.path)) ==
        "   2.9K  40 days ago       " + cache.entry(old) + "\n   2.0K  3 h ago           " +
            cache.entry(recent) + "\n   4.9K  total             " + cache.path + "\n");
  AgentDriver agent(cache.arguments(old));
  REQUIRE(agent.hello().missing_parts.empty());
  const std::string shown = joined(list_cache(cache.path));
  CHECK(shown.find("2.9K  in use on ") != std::string::npos);
  const std::string head = R"({"host":"a")";
  const auto as_json = list_cache_as_json(cache.path, head);
  REQUIRE(as_json);
  REQUIRE(as_json->size() == 2);
  const std::string beginning = head + R"(,"path":")" + cache.path;
  CHECK(as_json->at(0).starts_with(beginning));
  CHECK(as_json->at(0).find(R"(,"bytes":2048,"unused_s":)") != std::string::npos);
  CHECK(as_json->at(1).starts_with(beginning));
  CHECK(as_json->at(1).find(R"(,"bytes":3000,"unused_s":)") != std::string::npos);
  CHECK(as_json->at(1).find(R"(,"in_use_on":")") != std::string::npos);
}

TEST_CASE("using a bundle makes it young, when the job begins and when it ends") {
  const UsedCache cache;
  const auto bundle = bundle_of("x");
  cache.run_job(bundle);
  const auto age = [&] {
    struct stat info {};
    REQUIRE(::stat(cache.entry(bundle).c_str(), &info) == 0);
    return std::chrono::seconds(::time(nullptr) - info.st_mtim.tv_sec);
  };
  make_older(cache.entry(bundle), 40 * kDay);
  {
    AgentDriver agent(cache.arguments(bundle));
    REQUIRE(agent.hello().missing_parts.empty());
    CHECK(age() < kDay);
    make_older(cache.entry(bundle), 40 * kDay);
    agent.run(make_order({"true"}));
  }
  CHECK(age() < kDay);
}

TEST_CASE("an agent's last use is that of its note") {
  const UsedCache cache;
  fs::create_directories(cache.path);
  const std::string sha = sha256_hex("an agent");
  const std::string program = cache.path + "/agent-" + sha;
  const std::string note = cache.path + "/.verified-" + sha;
  write_file(program, "an agent");
  write_file(note, "a note");
  make_older(program, 40 * kDay);
  CHECK(joined(clean_cache(cache.path, older_than(30 * kDay))).empty());
  CHECK((fs::exists(program) && fs::exists(note)));
  make_older(note, 40 * kDay);
  const auto directory = CacheDirectory::open(cache.path);
  REQUIRE(directory);
  note_use(*directory, sha, "");
  CHECK(joined(clean_cache(cache.path, older_than(30 * kDay))).empty());
  CHECK(fs::exists(program));
  make_older(note, 40 * kDay);
  CHECK(joined(clean_cache(cache.path, older_than(30 * kDay))) ==
        "removed 1 entry of " + cache.path + ": 8\n");
  CHECK(!fs::exists(cache.path));
}

TEST_CASE("the end of a job keeps the limits, and never takes what a job uses") {
  const UsedCache cache;
  const auto old = bundle_of(std::string(3000, 'o'));
  const auto used = bundle_of(std::string(2500, 'u'));
  const auto mine = bundle_of(std::string(2000, 'm'));
  for (const auto& bundle : {old, used, mine}) cache.run_job(bundle);
  AgentDriver other(cache.arguments(used));
  REQUIRE(other.hello().missing_parts.empty());
  for (const auto& bundle : {old, used, mine}) make_older(cache.entry(bundle), 40 * kDay);
  SECTION("without limits all stays") {
    cache.run_job(mine);
    CHECK(fs::exists(cache.entry(old)));
  }
  SECTION("by age") {
    cache.run_job(mine, {"--cache-max-age", "2592000"});
    CHECK(!fs::exists(cache.entry(old)));
  }
  SECTION("by size, which even this job is too large for") {
    cache.run_job(mine, {"--cache-max-size", "1"});
    CHECK(!fs::exists(cache.entry(old)));
  }
  CHECK(fs::exists(cache.entry(used) + "/bin/tool"));
  CHECK(fs::exists(cache.entry(mine) + "/bin/tool"));
}

TEST_CASE("in passing, debris and an empty directory are left to others") {
  const UsedCache cache;
  fs::create_directories(cache.path);
  CleanRequest request = older_than(30 * kDay);
  request.in_passing = true;
  CHECK(joined(clean_cache(cache.path, request)).empty());
  CHECK(fs::exists(cache.path));
  const std::string debris = cache.path + "/.incoming-0123456789abcdef-fedcba9876543210";
  fs::create_directories(debris);
  make_older(debris, 3 * kDay);
  CHECK(joined(clean_cache(cache.path, request)).empty());
  CHECK(fs::exists(debris));
  CHECK(joined(clean_cache(cache.path, {})).empty());
  CHECK(!fs::exists(cache.path));
}

// Jobs of one shared directory, each with a limit that everything is beyond: each has what it uses.
TEST_CASE("jobs that limit one cache at the same time do not take from each other") {
  const UsedCache cache;
  const auto run = [&cache](const std::string& content) {
    const auto bundle = bundle_of("#!/bin/sh\necho " + content + "\n");
    auto words = cache.arguments(bundle);
    words.insert(words.end(), {"--cache-max-size", "1"});
    for (int round = 0; round < 25; ++round) {
      AgentDriver agent(words);
      if (!agent.hello().missing_parts.empty()) send_bundle(agent, bundle);
      auto order = shell_order("exec tool");
      order.prepend_paths = {{"PATH", "@bundle@/bin"}};
      agent.run(order);
      if (agent.output[{0, 1}] != content + "\n") return false;
    }
    return true;
  };
  bool good[3] = {};
  std::thread first([&] { good[0] = run("one"); });
  std::thread second([&] { good[1] = run("two"); });
  good[2] = run("two");
  first.join();
  second.join();
  CHECK((good[0] && good[1] && good[2]));
}

// A process that is killed between two steps leaves complete entries, and debris that is removed.
TEST_CASE("a cleaner that is killed leaves a cache that works") {
  const UsedCache cache;
  int killed = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<PackedBundle> bundles;
    fs::create_directories(cache.path);
    for (int k = 0; k < 3; ++k) {
      bundles.push_back(bundle_of("#!/bin/sh\necho " + std::to_string(k) + "\n"));
      if (!fs::exists(cache.entry(bundles.back()))) cache.run_job(bundles.back());
      make_older(cache.entry(bundles.back()), (40 + k) * kDay);
    }
    const pid_t cleaner = ::fork();
    REQUIRE(cleaner >= 0);
    if (cleaner == 0) {
      (void)clean_cache(cache.path, older_than(30 * kDay));
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(round * 40));
    ::kill(cleaner, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(cleaner, &status, 0) == cleaner);
    if (WIFSIGNALED(status)) ++killed;
    const auto directory = BundleCache::open(cache.path);
    if (!directory) continue;  // all is gone, the directory, too
    for (const auto& bundle : bundles) {
      if (fs::exists(cache.entry(bundle))) CHECK(directory->find(bundle.name()));
    }
  }
  CHECK(killed > 0);
  CHECK(clean_cache(cache.path, {}));
  CHECK(!fs::exists(cache.path));
}
