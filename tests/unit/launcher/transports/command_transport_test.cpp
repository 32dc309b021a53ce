// SPDX-License-Identifier: Apache-2.0
// The command transport with real shells and the agent's double on this machine.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>

#include "launcher/failures/failure_code.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/time.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/transports/shell_run.h"

namespace hora::launcher {
namespace {

using std::chrono::seconds;

AgentImage image(std::vector<std::string> arguments) {
  AgentImage made;
  const std::string path = HORA_DOUBLE_AGENT;
  const auto sum = test::run_program({"sha256sum", path}).out;
  made.builds = {{std::string(own_machine()), path, sum.substr(0, sum.find(' ')), "",
                  std::filesystem::file_size(path)}};
  made.arguments = std::move(arguments);
  return made;
}

// Frames as a supervisor reads them.
class Reader {
 public:
  explicit Reader(os::Fd fd) : fd_(std::move(fd)) {}
  std::optional<Frame> next() {
    while (true) {
      if (started_) {
        auto frame = reader_.next();
        REQUIRE(frame);
        if (*frame) return *std::move(*frame);
      }
      pollfd ready{fd_.get(), POLLIN, 0};
      REQUIRE(::poll(&ready, 1, 30'000) == 1);
      char buffer[65536];
      const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
      if (got <= 0) return std::nullopt;
      std::string_view bytes(buffer, static_cast<std::size_t>(got));
      if (!started_) {
        REQUIRE(bytes.substr(0, kAgentMagic.size()) == kAgentMagic);
        bytes.remove_prefix(kAgentMagic.size());
        started_ = true;
      }
      reader_.feed(bytes);
    }
  }
  int fd() const { return fd_.get(); }

 private:
  os::Fd fd_;
  FrameReader reader_;
  bool started_ = false;
};

std::vector<std::string> shell_with_home(const std::string& home) {
  return {"env", "HOME=" + home, "XDG_CACHE_HOME=" + home, "sh", "-c", "{command}"};
}

TEST_CASE("an agent is shipped through a command, then found in the cache") {
  const test::TemporaryDirectory home;
  std::vector<std::pair<int, Stage>> stages;
  std::mutex mutex;
  auto transport = make_command_transport(shell_with_home(home.path()),
                                          [&](int host, Stage stage, std::string_view) {
                                            std::lock_guard lock(mutex);
                                            stages.emplace_back(host, stage);
                                          });
  for (int round = 0; round < 2; ++round) {
    auto fd = transport->start({"x", "", {}}, round, image({"--echo"}), Clock::now() + seconds(30));
    REQUIRE(fd);
    Reader reader(*std::move(fd));
    auto hello = reader.next();
    REQUIRE(hello);
    CHECK(hello->type == FrameType::kHello);
    const std::string frame = encode_frame(FrameType::kData, std::string(100'000, 'd'));
    REQUIRE(::send(reader.fd(), frame.data(), frame.size(), 0) ==
            static_cast<ssize_t>(frame.size()));
    auto echoed = reader.next();
    REQUIRE(echoed);
    CHECK(echoed->payload == std::string(100'000, 'd'));
  }
  transport.reset();
  const auto ship = [&](int host) {
    return std::count(stages.begin(), stages.end(), std::make_pair(host, Stage::kShip));
  };
  CHECK(ship(0) == 1);
  CHECK(ship(1) == 0);
}

TEST_CASE("No more commands run without an agent than the fan-out allows") {
  const test::TemporaryDirectory home;
  std::vector<std::pair<int, Stage>> stages;
  std::mutex mutex;
  auto transport = make_command_transport(
      shell_with_home(home.path()),
      [&](int host, Stage stage, std::string_view) {
        const std::lock_guard lock(mutex);
        if (stage == Stage::kConnect || stage == Stage::kAgent) stages.emplace_back(host, stage);
      },
      1);
  std::vector<std::unique_ptr<Reader>> readers;
  for (int host = 0; host < 3; ++host) {
    auto fd = transport->start({"x", "", {}}, host, image({"--echo"}), Clock::now() + seconds(30));
    REQUIRE(fd);
    readers.push_back(std::make_unique<Reader>(*std::move(fd)));
  }
  for (auto& reader : readers) REQUIRE(reader->next());
  readers.clear();
  transport.reset();
  REQUIRE(stages.size() == 6);
  for (int host = 0; host < 3; ++host) {
    const auto at = static_cast<std::size_t>(2 * host);
    CHECK(stages[at] == std::make_pair(host, Stage::kConnect));
    CHECK(stages[at + 1] == std::make_pair(host, Stage::kAgent));
  }
}

TEST_CASE("many hosts through one command at the same time") {
  const test::TemporaryDirectory home;
  auto transport = make_command_transport(shell_with_home(home.path()), nullptr);
  std::vector<Reader> readers;
  const auto agent = image({});
  for (int i = 0; i < 24; ++i) {
    auto fd = transport->start({"x", "", {}}, i, agent, Clock::now() + seconds(60));
    REQUIRE(fd);
    readers.emplace_back(*std::move(fd));
  }
  for (auto& reader : readers) {
    auto hello = reader.next();
    REQUIRE(hello);
    CHECK(hello->type == FrameType::kHello);
  }
}

// Refuses as long as the file `log` has no more than `refusals` lines, and adds one each time.
std::vector<std::string> refusing_shell(const std::string& home, int refusals) {
  std::vector<std::string> command = shell_with_home(home);
  command.back() = "echo >>$HOME/log; [ $(wc -l <$HOME/log) -gt " + std::to_string(refusals) +
                   " ] || { echo \"error: daemon didn't accept task\" >&2; exit 1; }; eval \"$0\"";
  command.emplace_back("{command}");
  return command;
}

TEST_CASE("a host that refuses for now is tried again, and the reason is said") {
  const test::TemporaryDirectory home;
  std::vector<std::string> reported;
  std::mutex mutex;
  auto transport = make_command_transport(
      refusing_shell(home.path(), 2),
      [&](int, Stage stage, std::string_view detail) {
        std::lock_guard lock(mutex);
        if (stage == Stage::kConnect && detail.find("trying again") != detail.npos) {
          reported.emplace_back(detail);
        }
      },
      64, "didn't accept task");
  auto fd = transport->start({"x", "", {}}, 0, image({}), Clock::now() + seconds(60));
  REQUIRE(fd);
  Reader reader(*std::move(fd));
  auto hello = reader.next();
  REQUIRE(hello);
  CHECK(hello->type == FrameType::kHello);
  transport.reset();
  REQUIRE(reported.size() == 2);
  CHECK(reported[0].find("ms: error: daemon didn't accept task") != std::string::npos);
}

TEST_CASE("a host that goes on refusing has failed") {
  const test::TemporaryDirectory home;
  auto transport =
      make_command_transport(refusing_shell(home.path(), 1000), nullptr, 64, "didn't accept task");
  auto fd = transport->start({"x", "", {}}, 0, image({}), Clock::now() + seconds(60));
  REQUIRE(fd);
  Reader reader(*std::move(fd));
  auto frame = reader.next();
  REQUIRE(frame);
  REQUIRE(frame->type == FrameType::kFailure);
  CHECK(decode<Failure>(frame->payload)->message.find("didn't accept task") != std::string::npos);
  // Five times, and once more with a fresh copy of the agent.
  std::ifstream log(home.path() + "/log");
  CHECK(std::count(std::istreambuf_iterator<char>(log), {}, '\n') == 7);
}

Failure failure_of(std::vector<std::string> command, Clock::duration limit = seconds(30)) {
  auto transport = make_command_transport(std::move(command), nullptr);
  auto fd = transport->start({"x", "", {}}, 0, image({}), Clock::now() + limit);
  REQUIRE(fd);
  Reader reader(*std::move(fd));
  auto frame = reader.next();
  REQUIRE(frame);
  REQUIRE(frame->type == FrameType::kFailure);
  auto failure = decode<Failure>(frame->payload);
  REQUIRE(failure);
  CHECK_FALSE(reader.next());
  return *failure;
}

TEST_CASE("a command that cannot be started, or fails, says so") {
  CHECK(failure_of({"/no/such/program"}).code == failure::kRsh);
  const auto words = failure_of({"sh", "-c", "echo some words >&2; exit 255", "{host}"});
  CHECK(words.code == failure::kRsh);
  CHECK(words.message.find("some words") != std::string::npos);
  const auto silent = failure_of({"sleep", "1000", "{host}"}, std::chrono::milliseconds(300));
  CHECK(silent.code == failure::kRsh);
}

TEST_CASE("a command is over when it ends, though another process keeps its output open") {
  const auto failure = failure_of({"sh", "-c", "sleep 1000 & echo $! >&2; exit 255", "{host}"});
  CHECK(failure.code == failure::kRsh);
  const auto at = failure.message.find("it said: '");
  REQUIRE(at != std::string::npos);
  ::kill(std::stoi(failure.message.substr(at + 10)), SIGKILL);
}

TEST_CASE("a transport that ends takes its children with it") {
  const test::TemporaryDirectory home;
  auto transport =
      make_command_transport({"sh", "-c", "trap '' TERM; sleep 1000", "{host}"}, nullptr);
  auto fd = transport->start({"x", "", {}}, 0, image({}), Clock::now() + seconds(30));
  REQUIRE(fd);
  const auto began = Clock::now();
  transport.reset();
  CHECK(Clock::now() - began < seconds(10));
  char byte;
  pollfd ready{fd->get(), POLLIN, 0};
  REQUIRE(::poll(&ready, 1, 10'000) == 1);
  CHECK(::recv(fd->get(), &byte, 1, 0) == 0);
}

TEST_CASE("no command at all is refused at once") {
  auto transport = make_command_transport({}, nullptr);
  CHECK_FALSE(transport->start({"x", "", {}}, 0, image({}), Clock::now() + seconds(5)));
}

}  // namespace
}  // namespace hora::launcher
