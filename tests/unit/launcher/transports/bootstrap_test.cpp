// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/bootstrap.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "rendezvous/base/time.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/transports/shell_run.h"

namespace hora::launcher {
namespace {

namespace fs = std::filesystem;
using test::run_program;
using test::shells_here;
using test::TemporaryDirectory;

// Stands in for the agent: prints the magic and its arguments, then what it finds on stdin.
const std::string kAgent =
    "#!/bin/sh\nprintf '\\001HORA-AGENT-1\\n'; for a; do printf '<%s>' \"$a\"; done; cat\n";

std::string machine_here() {
  auto name = run_program({"uname", "-m"}).out;
  name.pop_back();
  return name;
}

BootstrapRequest request_for_agent() {
  BootstrapRequest request;
  request.builds = {{"vax", "", "dead", "b1", 1},
                    {machine_here(), "", "abc123", "b42,b43:gpu", kAgent.size()}};
  request.nonce = "n0nce";
  request.arguments = {"--mark", "it's a \\ ! test"};
  return request;
}

std::vector<std::string> with_line(std::vector<std::string> shell,
                                   const BootstrapRequest& request) {
  auto line = bootstrap_line(request);
  REQUIRE(line);
  shell.push_back(*line);
  return shell;
}

// One test of the script per /bin/sh that a host may have.
std::vector<std::string> script_under(const std::vector<std::string>& sh,
                                      const BootstrapRequest& request) {
  auto line = bootstrap_line(request);
  REQUIRE(line);
  const std::string prefix = "exec /bin/sh -c ";
  REQUIRE(line->compare(0, prefix.size(), prefix) == 0);
  std::string named;
  for (std::size_t i = 0; i + 1 < sh.size(); ++i) named += sh[i] + " ";
  return {"bash", "-c", "exec " + named + "-c " + line->substr(prefix.size())};
}

// zsh is sh only when called by that name; posh has no `test -O`, and no system has it as sh.
bool may_be_bin_sh(const std::vector<std::string>& shell) {
  return shell[0] != "zsh" && shell[0] != "posh";
}

std::vector<std::string> environment(const std::string& home, const std::string& temporary) {
  return {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + temporary};
}

std::string magic() { return std::string(kAgentMagic); }
std::string expected_arguments(const std::string& cache, bool shipped = false) {
  return "<agent><--cache><" + cache + (shipped ? "><--report-sha" : "") +
         "><--parts><b42,b43:gpu><--mark><it's a \\ ! test>";
}

TEST_CASE("every login shell ships a missing agent, and starts it from the cache the next time") {
  for (const auto& shell : shells_here(false)) {
    INFO(shell[0]);
    TemporaryDirectory home;
    const std::string cache = home.path() + "/.cache/hora";
    const auto argv = with_line(shell, request_for_agent());
    const auto variables = environment(home.path(), home.path());

    auto first = run_program(argv, transfer_header(false, kAgent.size()) + kAgent, variables);
    BootstrapDialogue dialogue("n0nce");
    auto event = dialogue.feed(first.out);
    REQUIRE(std::holds_alternative<BootstrapDialogue::Need>(event));
    CHECK(std::get<BootstrapDialogue::Need>(event).directory == cache);
    CHECK(std::get<BootstrapDialogue::Need>(event).gzip);
    CHECK_FALSE(std::get<BootstrapDialogue::Need>(event).machine.empty());
    event = dialogue.feed({});
    REQUIRE(std::holds_alternative<BootstrapDialogue::Started>(event));
    CHECK(std::get<BootstrapDialogue::Started>(event).rest == expected_arguments(cache, true));
    CHECK(first.err.empty());
    CHECK(fs::status(cache).permissions() == fs::perms::owner_all);
    // Nothing but the agent is left there.
    CHECK(std::distance(fs::directory_iterator(cache), fs::directory_iterator()) == 1);

    auto second = run_program(argv, "hello", variables);
    CHECK(second.out == magic() + expected_arguments(cache) + "hello");
    CHECK(second.exit_code == 0);
    CHECK(second.err.empty());
  }
}

TEST_CASE("every shell takes the build for its processor, and says when there is none") {
  for (const auto& shell : shells_here(true)) {
    if (!may_be_bin_sh(shell)) continue;
    INFO(shell[0]);
    TemporaryDirectory home;
    const auto variables = environment(home.path(), home.path());
    BootstrapRequest request = request_for_agent();
    request.builds.erase(request.builds.begin() + 1);
    const auto run = run_program(script_under(shell, request), "", variables);
    BootstrapDialogue dialogue("n0nce");
    const auto event = dialogue.feed(run.out);
    REQUIRE(std::holds_alternative<BootstrapDialogue::OtherMachine>(event));
    CHECK(std::get<BootstrapDialogue::OtherMachine>(event).machine == machine_here());
    CHECK(run.exit_code == 1);
    CHECK(run.err.empty());
    CHECK(fs::is_empty(home.path()));
  }
}

TEST_CASE("a host without uname takes the first build") {
  TemporaryDirectory home;
  const std::string tools = home.path() + "/bin";
  fs::create_directory(tools);
  for (const std::string tool : {"cat", "chmod", "head", "id", "ln", "mkdir", "mv", "rm", "wc"}) {
    fs::create_symlink("/bin/busybox", tools + "/" + tool);
  }
  BootstrapRequest request = request_for_agent();
  std::swap(request.builds[0], request.builds[1]);
  const std::vector<std::string> variables = {"PATH=" + tools, "HOME=" + home.path(),
                                              "TMPDIR=" + home.path()};
  const auto run = run_program(with_line({"/bin/sh", "-c"}, request),
                               transfer_header(false, kAgent.size()) + kAgent, variables);
  const std::string cache = home.path() + "/.cache/hora";
  CHECK(run.out ==
        "HORA-n0nce need raw  " + cache + "\n" + magic() + expected_arguments(cache, true));
  CHECK(run.err.empty());
}

TEST_CASE("a line for sh starts no shell and asks no uname") {
  TemporaryDirectory home;
  BootstrapRequest request = request_for_agent();
  request.for_sh = true;
  const std::string machine = request.builds[1].machine;
  const std::string tools = home.path() + "/bin";
  fs::create_directory(tools);
  for (const std::string tool : {"cat", "chmod", "head", "id", "ln", "mkdir", "mv", "rm", "wc"}) {
    fs::create_symlink("/bin/busybox", tools + "/" + tool);
  }
  const auto line = bootstrap_line(request);
  REQUIRE(line);
  CHECK(line->find("exec /bin/sh") == std::string::npos);
  const std::vector<std::string> variables = {"PATH=" + tools, "HOME=" + home.path(),
                                              "TMPDIR=" + home.path()};
  const auto run = run_program({"/bin/sh", "-c", "_m=" + machine + "; " + *line},
                               transfer_header(false, kAgent.size()) + kAgent, variables);
  const std::string cache = home.path() + "/.cache/hora";
  CHECK(run.out == "HORA-n0nce need raw " + machine + " " + cache + "\n" + magic() +
                       expected_arguments(cache, true));
  CHECK(run.err.empty());
}

TEST_CASE("the words of the line name the agent that its script would start") {
  BootstrapRequest request = request_for_agent();
  const auto words = bootstrap_words(request);
  const auto agent = cached_agent(words, machine_here());
  REQUIRE(agent);
  CHECK(agent->name == "agent-abc123");
  CHECK(agent->arguments ==
        std::vector<std::string>{"--parts", "b42,b43:gpu", "--mark", "it's a \\ ! test"});
  CHECK(cached_agent(words, "vax")->name == "agent-dead");
  CHECK_FALSE(cached_agent(words, "pdp11"));
  CHECK_FALSE(cached_agent({}, "vax"));
  CHECK_FALSE(cached_agent({"vax", "dead", "1", "b1"}, "vax"));
  CHECK_FALSE(cached_agent({"vax", "../dead", "1", "b1", "-"}, "vax"));
  request.builds[0].parts.clear();
  request.arguments.clear();
  CHECK(cached_agent(bootstrap_words(request), "vax")->arguments.empty());
}

TEST_CASE("a gzipped agent is unpacked") {
  TemporaryDirectory home;
  std::ofstream(home.path() + "/a") << kAgent;
  const auto packed = run_program({"gzip", "-nc", home.path() + "/a"}).out;
  REQUIRE(packed.size() > 20);
  for (const auto& shell : shells_here(true)) {
    INFO(shell[0]);
    TemporaryDirectory other;
    auto run = run_program(with_line(shell, request_for_agent()),
                           transfer_header(true, packed.size()) + packed + "",
                           environment(other.path(), other.path()));
    CHECK(run.out.find(magic() + expected_arguments(other.path() + "/.cache/hora", true)) !=
          std::string::npos);
  }
}

TEST_CASE("the script runs under every POSIX shell that may be /bin/sh") {
  for (const auto& shell : shells_here(true)) {
    if (!may_be_bin_sh(shell)) continue;
    INFO(shell[0]);
    TemporaryDirectory home;
    const std::string cache = home.path() + "/.cache/hora";
    const auto argv = script_under(shell, request_for_agent());
    const auto variables = environment(home.path(), home.path());
    auto first = run_program(argv, transfer_header(false, kAgent.size()) + kAgent, variables);
    CHECK(first.out.find(magic() + expected_arguments(cache, true)) != std::string::npos);
    CHECK(first.err.empty());
    auto second = run_program(argv, "hello", variables);
    CHECK(second.out == magic() + expected_arguments(cache) + "hello");
    CHECK(second.err.empty());
  }
}

TEST_CASE("a transfer that breaks off leaves nothing behind") {
  for (const auto& shell : shells_here(true)) {
    if (!may_be_bin_sh(shell)) continue;
    INFO(shell[0]);
    TemporaryDirectory home;
    auto run = run_program(script_under(shell, request_for_agent()),
                           transfer_header(false, kAgent.size()) + kAgent.substr(0, 20),
                           environment(home.path(), home.path()));
    CHECK(run.out.find(magic()) == std::string::npos);
    CHECK(run.exit_code != 0);
    for (const auto& entry : fs::recursive_directory_iterator(home.path())) {
      CHECK_FALSE(entry.is_regular_file());
    }
  }
}

// A cache on two hosts that share a home: in each, the shell has the same process number.
struct SharedHome {
  TemporaryDirectory home;
  std::string cache = home.path() + "/.cache/hora";
  std::string rest = home.path() + "/rest";  // a FIFO: the first agent's last bytes
  std::vector<std::string> variables = environment(home.path(), home.path());

  SharedHome() { REQUIRE(::mkfifo(rest.c_str(), 0600) == 0); }

  static bool is_possible() {
    return run_program({"unshare", "--pid", "--fork", "true"}).exit_code == 0;
  }
  std::vector<std::string> start(const std::string& nonce, const std::string& input) const {
    auto request = request_for_agent();
    request.nonce = nonce;
    auto line = bootstrap_line(request);
    REQUIRE(line);
    return {"bash", "-c", input + " | unshare --pid --fork sh -c \"$1\"", "bash", *line};
  }
  // Its transfer stops in the middle until write_rest().
  std::thread begin_first(test::ShellRun& run) const {
    std::ofstream(home.path() + "/begin")
        << transfer_header(false, kAgent.size()) + kAgent.substr(0, 20);
    std::thread running(
        [this, &run, argv = start("first", "cat " + home.path() + "/begin " + rest)] {
          run = run_program(argv, "", variables);
        });
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (!has_begun() && Clock::now() < deadline) ::usleep(1'000);
    return running;
  }
  void write_rest() const { std::ofstream(rest) << kAgent.substr(20); }
  // What tried out whether programs run there is empty again.
  bool has_begun() const {
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(cache, none_yet)) {
      struct stat info {};
      if (::stat(entry.path().c_str(), &info) == 0 && info.st_size == 0 && (info.st_mode & 0100)) {
        return true;
      }
    }
    return false;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(cache))
      found.push_back(entry.path().filename());
    return found;
  }
};

TEST_CASE("hosts that share a home ship at one time, whatever their shells' process numbers") {
  if (!SharedHome::is_possible()) return;  // needs root
  const SharedHome shared;
  test::ShellRun first;
  std::thread running = shared.begin_first(first);
  const auto second = run_program(shared.start("second", "cat"),
                                  transfer_header(false, kAgent.size()) + kAgent, shared.variables);
  struct stat quicker {};
  const int there = ::stat((shared.cache + "/agent-abc123").c_str(), &quicker);
  shared.write_rest();
  running.join();
  const std::string started = magic() + expected_arguments(shared.cache, true);
  CHECK(first.out.find(started) != std::string::npos);
  CHECK(second.out.find(started) != std::string::npos);
  CHECK(first.err + second.err == "");
  CHECK(shared.names() == std::vector<std::string>{"agent-abc123"});
  // The copy that the second may run on another host was not replaced.
  struct stat now {};
  REQUIRE(there == 0);
  REQUIRE(::stat((shared.cache + "/agent-abc123").c_str(), &now) == 0);
  CHECK(now.st_ino == quicker.st_ino);
}

TEST_CASE("a launcher that refuses ends the script") {
  TemporaryDirectory home;
  auto run = run_program(with_line({"sh", "-c"}, request_for_agent()), transfer_refusal(),
                         environment(home.path(), home.path()));
  CHECK(run.exit_code == 1);
  CHECK(fs::is_empty(home.path() + "/.cache/hora"));
}

TEST_CASE("a directory that cannot be used leads to the next one") {
  TemporaryDirectory home;
  const std::string temporary = home.path() + "/tmp";
  const std::string uid = std::to_string(::getuid());
  const std::string next = temporary + "/hora-" + uid;
  fs::create_directory(temporary);

  auto ship = [&] {
    return run_program(with_line({"sh", "-c"}, request_for_agent()),
                       transfer_header(false, kAgent.size()) + kAgent,
                       environment(home.path(), temporary));
  };
  SECTION("a file where the folder belongs") { std::ofstream(home.path() + "/.cache") << "x"; }
  SECTION("a symbolic link") {
    fs::create_directories(home.path() + "/elsewhere");
    fs::create_directories(home.path() + "/.cache");
    fs::create_directory_symlink(home.path() + "/elsewhere", home.path() + "/.cache/hora");
  }
  SECTION("another user's") {
    if (::getuid() != 0) return;
    fs::create_directories(home.path() + "/.cache/hora");
    REQUIRE(::chown((home.path() + "/.cache/hora").c_str(), 12345, 12345) == 0);
  }
  SECTION("one that others may replace") {
    if (::getuid() != 0) return;
    fs::create_directories(home.path() + "/.cache/hora");
    REQUIRE(::chown((home.path() + "/.cache").c_str(), 12345, 12345) == 0);
    fs::permissions(home.path() + "/.cache", fs::perms::all);
  }
  auto run = ship();
  CHECK(run.out.find("n0nce need gz") != std::string::npos);
  CHECK(run.out.find(" " + next + "\n") != std::string::npos);
  CHECK(run.out.find(magic() + expected_arguments(next, true)) != std::string::npos);
  auto again = run_program(with_line({"sh", "-c"}, request_for_agent()), "",
                           environment(home.path(), temporary));
  CHECK(again.out == magic() + expected_arguments(next));
}

TEST_CASE("a cached agent in a directory of someone else, or behind a link, is not started") {
  TemporaryDirectory home;
  const std::string uid = std::to_string(::getuid());
  const std::string hostile = home.path() + "/hora-" + uid;
  fs::create_directories(hostile);
  std::ofstream(hostile + "/agent-abc123") << "#!/bin/sh\necho stolen\n";
  fs::permissions(hostile + "/agent-abc123", fs::perms::owner_all);
  bool hostile_is_set = false;
  SECTION("another user's directory") {
    if (::getuid() != 0) return;
    REQUIRE(::chown(hostile.c_str(), 12345, 12345) == 0);
    hostile_is_set = true;
  }
  SECTION("another user's file") {
    if (::getuid() != 0) return;
    REQUIRE(::chown((hostile + "/agent-abc123").c_str(), 12345, 12345) == 0);
    hostile_is_set = true;
  }
  SECTION("a link") {
    fs::rename(hostile, home.path() + "/real");
    fs::create_directory_symlink(home.path() + "/real", hostile);
    hostile_is_set = true;
  }
  SECTION("a directory that others may replace") {
    if (::getuid() != 0) return;
    REQUIRE(::chown(home.path().c_str(), 12345, 12345) == 0);
    fs::permissions(home.path(), fs::perms::all);
    hostile_is_set = true;
  }
  REQUIRE(hostile_is_set);
  auto run = run_program(with_line({"sh", "-c"}, request_for_agent()), transfer_refusal(),
                         {{"PATH=/usr/bin:/bin", "TMPDIR=" + home.path()}});
  CHECK(run.out.find("stolen") == std::string::npos);
}

TEST_CASE("a forced start ships again over what is there") {
  TemporaryDirectory home;
  const std::string cache = home.path() + "/.cache/hora";
  fs::create_directories(cache);
  std::ofstream(cache + "/agent-abc123") << "#!/bin/sh\necho broken\n";
  fs::permissions(cache + "/agent-abc123", fs::perms::owner_all);
  auto request = request_for_agent();
  request.force = true;
  auto run =
      run_program(with_line({"sh", "-c"}, request), transfer_header(false, kAgent.size()) + kAgent,
                  environment(home.path(), home.path()));
  CHECK(run.out.find("broken") == std::string::npos);
  CHECK(run.out.find(magic()) != std::string::npos);
}

TEST_CASE("no directory at all is a failure with every reason") {
  if (::getuid() != 0) return;
  TemporaryDirectory home;
  for (const char* name : {"/home/.cache/hora", "/hora-0"}) {
    fs::create_directories(home.path() + name);
    REQUIRE(::chown((home.path() + name).c_str(), 12345, 12345) == 0);
  }
  const bool shm_was_there = fs::exists("/dev/shm/hora-0");
  if (shm_was_there) return;
  std::ofstream("/dev/shm/hora-0") << "in the way";
  auto run = run_program(with_line({"sh", "-c"}, request_for_agent()), "",
                         environment(home.path() + "/home", home.path()));
  fs::remove("/dev/shm/hora-0");
  BootstrapDialogue dialogue("n0nce");
  auto event = dialogue.feed(run.out);
  REQUIRE(std::holds_alternative<BootstrapDialogue::Failed>(event));
  CHECK(unfit_text(std::get<BootstrapDialogue::Failed>(event).directories) ==
        home.path() + "/home/.cache/hora belongs to another user; " + home.path() +
            "/hora-0 belongs to another user; /dev/shm/hora-0 cannot be created");
  CHECK(run.exit_code == 1);
}

TEST_CASE("the dialogue finds markers behind noise, in pieces of any size") {
  const std::string stream = "Welcome!\nlast login: now" +
                             std::string("HORA-n0nce need raw x86_64 /d e\n") +
                             "more noise HORA-other need gz a /b\n" + magic() + "frames";
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    BootstrapDialogue dialogue("n0nce");
    int needs = 0;
    std::string rest;
    bool started = false;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      if (started) {
        rest += stream.substr(at, step);
        continue;
      }
      auto event = dialogue.feed(stream.substr(at, step));
      while (!std::holds_alternative<BootstrapDialogue::Listening>(event)) {
        if (auto* need = std::get_if<BootstrapDialogue::Need>(&event)) {
          ++needs;
          CHECK_FALSE(need->gzip);
          CHECK(need->machine == "x86_64");
          CHECK(need->directory == "/d e");
        } else if (auto* start = std::get_if<BootstrapDialogue::Started>(&event)) {
          started = true;
          rest = start->rest;
          break;
        } else {
          FAIL("not a failure");
        }
        event = dialogue.feed({});
      }
    }
    CHECK(needs == 1);
    CHECK(started);
    CHECK(rest == "frames");
    CHECK(dialogue.noise() == "Welcome!\nlast login: nowmore noise HORA-other need gz a /b\n");
  }
}

TEST_CASE("the dialogue takes a reason that it does not know, and no more than a few") {
  BootstrapDialogue dialogue("n0nce");
  std::string stream = "HORA-n0nce unfit moon /a b\n";
  for (int i = 0; i < 100; ++i) stream += "HORA-n0nce unfit full /x\n";
  CHECK(std::holds_alternative<BootstrapDialogue::Listening>(dialogue.feed(stream)));
  const auto event = dialogue.feed("HORA-n0nce fail\n");
  REQUIRE(std::holds_alternative<BootstrapDialogue::Failed>(event));
  const auto& directories = std::get<BootstrapDialogue::Failed>(event).directories;
  CHECK(directories.size() < 20);
  CHECK(unfit_text({directories.front()}) == "/a b cannot be used");
  CHECK_FALSE(is_disk_full(directories));
  CHECK(unfit_text({}) == "there is no directory to try");
}

TEST_CASE("noise without end is kept within bounds") {
  BootstrapDialogue dialogue("n0nce");
  const std::string lot(100'000, 'x');
  for (int i = 0; i < 20; ++i) {
    REQUIRE(std::holds_alternative<BootstrapDialogue::Listening>(dialogue.feed(lot)));
    CHECK(dialogue.noise().size() <= MagicFinder::kMaxNoise + 100);
  }
  // A marker whose line never ends is noise too.
  for (int i = 0; i < 20; ++i) {
    REQUIRE(
        std::holds_alternative<BootstrapDialogue::Listening>(dialogue.feed("HORA-n0nce " + lot)));
  }
  CHECK(std::holds_alternative<BootstrapDialogue::Started>(dialogue.feed(kAgentMagic)));
}

TEST_CASE("the line is one that every shell reads, and short enough for csh") {
  BootstrapRequest request = request_for_agent();
  const std::string hash(64, 'a');
  request.builds = {{"x86_64", "", hash, hash, 3'000'000}, {"aarch64", "", hash, hash, 3'000'000}};
  auto line = bootstrap_line(request);
  REQUIRE(line);
  CHECK(line->find_first_of("\n\r") == std::string::npos);
  CHECK(line->size() < 4096);  // a word of csh has at most 8 KiB
  const std::size_t open = line->find('\'');
  const std::size_t close = line->find('\'', open + 1);
  CHECK(line->substr(open, close - open).find_first_of("\\!") == std::string::npos);
  CHECK(line->substr(close, 7) == "' hora ");
}

TEST_CASE("arguments that cannot be passed are refused") {
  auto request = request_for_agent();
  request.arguments = {"a\nb"};
  CHECK_FALSE(bootstrap_line(request));
  request = request_for_agent();
  request.nonce = "a b";
  CHECK_FALSE(bootstrap_line(request));
}

}  // namespace
}  // namespace hora::launcher
