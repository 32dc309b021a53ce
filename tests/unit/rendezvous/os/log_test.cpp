// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/os/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/os/fd.h"
#include "tests/support/catch.h"

using namespace hora::os;

namespace {

// stderr goes to a pipe while it lives; what was written comes out of finish().
class CapturedStderr {
 public:
  CapturedStderr() : saved_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) {
    std::array<int, 2> ends;
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    read_end_ = Fd(ends[0]);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  ~CapturedStderr() { restore(); }

  std::string finish() {
    restore();  // closes the last writing end
    std::string text;
    std::array<char, 4096> buffer;
    for (ssize_t got; (got = ::read(read_end_.get(), buffer.data(), buffer.size())) > 0;) {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  void restore() {
    if (!saved_.valid()) return;
    ::dup2(saved_.get(), STDERR_FILENO);
    saved_.reset();
  }
  Fd saved_;
  Fd read_end_;
};

struct RestoreLog {
  ~RestoreLog() {
    set_log_level(LogLevel::kWarn);
    set_log_time(false);
    set_log_sink({});
  }
};

}  // namespace

TEST_CASE("levels have names, and Horovod's names are understood") {
  for (const auto level : {LogLevel::kTrace, LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn,
                           LogLevel::kError, LogLevel::kOff}) {
    CHECK(parse_log_level(log_level_name(level)) == level);
  }
  CHECK(parse_log_level("WARNING") == LogLevel::kWarn);
  CHECK(parse_log_level("Fatal") == LogLevel::kError);
  CHECK_FALSE(parse_log_level("loud").has_value());
  CHECK_FALSE(parse_log_level("").has_value());
}

TEST_CASE("a line goes to stderr, without colour where there is no terminal") {
  RestoreLog restore;
  set_log_level(LogLevel::kInfo);
  CapturedStderr captured;
  log_debug("test", "not enabled");
  log_info("test", "a message with {} and % in it");
  log_warn("test", "second");
  log_error("test", "third");
  CHECK(captured.finish() ==
        "info test: a message with {} and % in it\nwarn test: second\nerror test: third\n");
}

TEST_CASE("lines begin with the time when it is wanted") {
  RestoreLog restore;
  CapturedStderr captured;
  set_log_time(true);
  log_warn("test", "with");
  set_log_time(false);
  log_warn("test", "without");
  const std::string text = captured.finish();
  CHECK(std::regex_match(text, std::regex(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} warn test: with)"
                                          "\nwarn test: without\n")));
}

TEST_CASE("a sink gets the lines instead") {
  RestoreLog restore;
  std::vector<std::string> lines;
  set_log_sink([&](std::string line) { lines.push_back(std::move(line)); });
  log_info("a", "below the level");
  log_warn("a", "b");
  CHECK(lines == std::vector<std::string>{"warn a: b\n"});
  set_log_level(LogLevel::kOff);
  log_error("a", "off");
  CHECK(lines.size() == 1);
}

TEST_CASE("lines of many threads stay whole") {
  RestoreLog restore;
  constexpr int kThreads = 4;
  constexpr int kLines = 200;
  const std::string filler(50, 'x');
  CapturedStderr captured;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int line = 0; line < kLines; ++line) log_warn("t", filler);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = captured.finish();
  std::string expected;
  for (int i = 0; i < kThreads * kLines; ++i) expected += "warn t: " + filler + "\n";
  CHECK(text == expected);
}

TEST_CASE("colour needs a terminal, and NO_COLOR forbids it") {
  const Fd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  REQUIRE(terminal.valid());
  REQUIRE(::grantpt(terminal.get()) == 0);
  REQUIRE(::unlockpt(terminal.get()) == 0);
  const Fd screen(::open(::ptsname(terminal.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  REQUIRE(screen.valid());
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm", 1);
  CHECK(colour_wanted(screen.get()));
  ::setenv("NO_COLOR", "", 1);
  CHECK(colour_wanted(screen.get()));
  ::setenv("NO_COLOR", "1", 1);
  CHECK_FALSE(colour_wanted(screen.get()));
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  CHECK_FALSE(colour_wanted(screen.get()));
  const Fd file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  ::setenv("TERM", "xterm", 1);
  CHECK_FALSE(colour_wanted(file.get()));
}
