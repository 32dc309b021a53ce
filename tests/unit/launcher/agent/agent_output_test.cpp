// SPDX-License-Identifier: Apache-2.0
// Every byte arrives, in order, whatever the bytes are and however slowly the launcher reads.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>

#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/agent/chatter.h"

using namespace hora::launcher;
using namespace hora::test;

namespace {

// Compares the arriving bytes with the expected ones, without keeping them.
class Checker {
 public:
  Checker(AgentDriver& agent, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      streams_.push_back({Chatter(static_cast<std::uint32_t>(rank) * 2), 0, true});
      streams_.push_back({Chatter(static_cast<std::uint32_t>(rank) * 2 + 1), 0, true});
    }
    agent.on_output = [this](int rank, int which, std::string_view bytes) {
      Stream& stream = streams_.at(static_cast<std::size_t>(rank * 2 + which - 1));
      expected_.resize(bytes.size());
      stream.chatter.fill(expected_.data(), bytes.size());
      stream.equal = stream.equal && expected_ == bytes;
      stream.size += bytes.size();
      total += bytes.size();
    };
  }
  void check(std::size_t bytes_of_each_stream) const {
    for (const Stream& stream : streams_) {
      CHECK(stream.equal);
      CHECK(stream.size == bytes_of_each_stream);
    }
  }
  std::size_t total = 0;

 private:
  struct Stream {
    Chatter chatter;
    std::size_t size;
    bool equal;
  };
  std::vector<Stream> streams_;
  std::string expected_;
};

HostOrder chatty_order(int ranks, std::size_t bytes, bool kill = false) {
  auto order =
      shell_order("exec \"$0\" $RANK " + std::to_string(bytes) + (kill ? " kill" : ""), ranks);
  order.argv.push_back(HORA_TEST_CHATTY_RANK);
  return order;
}

std::size_t peak_memory_kib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoul(line.substr(6));
  }
  return 0;
}

bool sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace

TEST_CASE("100 MB from four ranks") {
  AgentDriver agent;
  Checker checker(agent, 4);
  agent.run(chatty_order(4, 25'000'000));
  checker.check(12'500'000);
  CHECK(agent.output_ends.size() == 8);
  for (const auto& [stream, ends] : agent.output_ends) CHECK(ends == 1);
}

TEST_CASE("a launcher that does not acknowledge stops the ranks") {
  AgentDriver agent;
  Checker checker(agent, 8);
  auto order = chatty_order(8, 4'000'000);
  order.output_window_bytes = 100'000;
  agent.acknowledge_output = false;
  agent.start(order);
  while (checker.total < 100'000) agent.next();
  CHECK(checker.total == 100'000);
  const pid_t pid = agent.agent();
  // The window is closed and stays so: heartbeats come, output does not.
  CHECK_THROWS(agent.wait_for(FrameType::kOutput, std::chrono::milliseconds(300)));
  CHECK(checker.total == 100'000);
  CHECK(agent.exits.empty());
  if (!sanitized()) CHECK(peak_memory_kib(pid) < 16 * 1024);
  // It opens bit by bit.
  agent.send_number(FrameType::kOutputAck, 30'000);
  while (checker.total < 130'000) agent.next();
  CHECK(checker.total == 130'000);
  agent.acknowledge_output = true;
  agent.send_number(FrameType::kOutputAck, 100'000);
  agent.wait_for_goodbye();
  checker.check(2'000'000);
  CHECK(agent.exits.size() == 8);
}

TEST_CASE("a job can be ended while its output waits") {
  AgentDriver agent;
  auto order = shell_order("yes");
  order.output_window_bytes = 10'000;
  agent.acknowledge_output = false;
  agent.start(order);
  while (agent.output[{0, 1}].size() < 10'000) agent.next();
  agent.send_number(FrameType::kTerminate, 1'000);
  agent.send_number(FrameType::kOutputAck, 100'000'000);  // more than was sent does no harm
  agent.acknowledge_output = true;
  agent.wait_for_goodbye();
  CHECK(agent.exits.at(0).exit_code + agent.exits.at(0).signal > 0);
}

TEST_CASE("the last words of ranks that kill themselves") {
  for (int round = 0; round < 20; ++round) {
    AgentDriver agent;
    Checker checker(agent, 10);
    agent.run(chatty_order(10, 20'000, true));
    checker.check(10'000);
    REQUIRE(agent.exits.size() == 10);
    for (const auto& [rank, exit] : agent.exits) CHECK(exit.signal == 9);
  }
}

TEST_CASE("one that prints much does not silence another") {
  AgentDriver agent;
  agent.start(
      shell_order("if [ $RANK = 0 ]; then exec yes; fi; sleep 0.1; echo here; sleep 1000", 2));
  agent.on_output = [&agent](int rank, int stream, std::string_view bytes) {
    if (rank == 1) agent.output[{rank, stream}].append(bytes);
  };
  agent.wait_for_output(1, "here\n");
  agent.send_number(FrameType::kTerminate, 1'000);
  agent.wait_for_goodbye();
}

TEST_CASE("no output at all") {
  AgentDriver agent;
  agent.run(shell_order("exec >&- 2>&-; exit 0", 3));
  CHECK(agent.output.empty());
  CHECK(agent.output_ends.size() == 6);
}

// Else the end of the streams of a rank that ends would interrupt it.
TEST_CASE("a rank that closes its output ends it when it ends itself") {
  AgentDriver agent;
  agent.start(shell_order("trap 'exit 7' TERM; exec >&- 2>&-; kill -STOP $$; while :; do :; done"));
  const std::string stat = "/proc/" + std::to_string(agent.pids.at(0)) + "/stat";
  const auto state = [&stat] {
    std::string text;
    std::getline(std::ifstream(stat), text);
    return text.empty() ? '?' : text[text.rfind(')') + 2];
  };
  for (int look = 0; look < 20'000 && state() != 'T'; ++look) ::usleep(1'000);
  REQUIRE(state() == 'T');
  // The agent's answer follows everything that it has seen before.
  agent.send_number(FrameType::kDump, 0);
  agent.wait_for(FrameType::kStacks);
  CHECK(agent.output_ends.empty());
  agent.send_number(FrameType::kTerminate, 10'000);
  agent.wait_for_goodbye();
  CHECK(agent.output_ends.size() == 2);
  CHECK(agent.exits.at(0).exit_code == 7);
}

TEST_CASE("a rank's output ends with the rank, while others run") {
  AgentDriver agent;
  agent.start(shell_order("[ $RANK = 0 ] || exec sleep 1000", 2));
  while (agent.output_ends.size() < 2) REQUIRE(agent.next());
  CHECK(agent.output_ends.count({0, 1}) + agent.output_ends.count({0, 2}) == 2);
  agent.send_number(FrameType::kTerminate, 1'000);
  agent.wait_for_goodbye();
}

TEST_CASE("standard input reaches the rank that was promised it") {
  AgentDriver agent;
  auto order = make_order({"cat"}, 2);
  order.ranks[0].stdin_source = StdinSource::kStream;
  agent.start(order);
  std::string sent;
  Chatter chatter(7);
  for (int i = 0; i < 40; ++i) {
    std::string piece(25'000, '\0');
    chatter.fill(piece.data(), piece.size());
    std::string payload;
    append_u32(payload, 0);
    agent.send(FrameType::kInput, payload + piece);
    sent += piece;
  }
  agent.send_number(FrameType::kInputEnd, 0);
  agent.wait_for_goodbye();
  CHECK((agent.output[{0, 1}] == sent));
  CHECK(agent.output[{1, 1}].empty());  // reads /dev/null
  CHECK(agent.input_acknowledged[0] == sent.size());
}

TEST_CASE("standard input for a rank that does not read is acknowledged when it ends") {
  AgentDriver agent;
  auto order = shell_order("exec <&-; echo closed; sleep 0.2");
  order.ranks[0].stdin_source = StdinSource::kStream;
  agent.start(order);
  agent.wait_for_output(0, "closed");
  std::string payload;
  append_u32(payload, 0);
  agent.send(FrameType::kInput, payload + std::string(500'000, 'x'));
  agent.wait_for_goodbye();
  CHECK(agent.input_acknowledged[0] == 500'000);
  CHECK(agent.exits.at(0).exit_code == 0);
}

TEST_CASE("a rank with a terminal has its keys and its size, and all that it writes arrives") {
  AgentDriver agent;
  auto order = shell_order(
      "stty size; test -t 0 && test -t 1 && test -t 2 && echo all three; read line; stty size; "
      "seq 20000 >&2");
  order.ranks[0].stdin_source = StdinSource::kTerminal;
  order.ranks[0].rows = 30;
  order.ranks[0].columns = 100;
  agent.start(order);
  agent.wait_for_output(0, "all three");
  std::string size;
  for (const std::uint32_t number : {0u, 40u, 120u}) append_u32(size, number);
  agent.send(FrameType::kResize, size);
  std::string keys;
  append_u32(keys, 0);
  agent.send(FrameType::kInput, keys + "x\r");
  agent.wait_for_goodbye();
  std::string expected = "30 100\r\nall three\r\nx\r\n40 120\r\n";
  for (int i = 1; i <= 20'000; ++i) expected += std::to_string(i) + "\r\n";
  CHECK((agent.output[{0, 1}] == expected));
  CHECK(agent.input_acknowledged[0] == 2);
  CHECK(agent.exits.at(0).exit_code == 0);
  CHECK(agent.exits.at(0).last_stderr.ends_with("20000\r\n"));
}

TEST_CASE("the interrupt key of a rank's terminal is for that rank alone") {
  AgentDriver agent;
  auto order = shell_order("echo ready; sleep 1000 & wait; echo not interrupted", 2);
  order.ranks[0].stdin_source = StdinSource::kTerminal;
  agent.start(order);
  agent.wait_for_output(0, "ready");
  agent.wait_for_output(1, "ready");
  std::string keys;
  append_u32(keys, 0);
  agent.send(FrameType::kInput, keys + "\x03");
  while (agent.exits.empty()) REQUIRE(agent.next());
  CHECK(agent.exits.count(1) == 0);
  CHECK(agent.exits.at(0).signal == SIGINT);
  agent.send_number(FrameType::kTerminate, 1'000);
  agent.wait_for_goodbye();
}

TEST_CASE("input for a rank that is not here") {
  AgentDriver agent;
  agent.start(shell_order("sleep 0.1"));
  std::string payload;
  append_u32(payload, 99);
  agent.send(FrameType::kInput, payload + "x");
  agent.send_number(FrameType::kInputEnd, 99);
  agent.wait_for_goodbye();
  CHECK(agent.input_acknowledged[99] == 1);
}

TEST_CASE("a thousand quick jobs") {
  const int rounds = sanitized() ? 100 : 1'000;
  for (int round = 0; round < rounds; ++round) {
    AgentDriver agent;
    agent.run(make_order({"/bin/true"}, 4));
    REQUIRE(agent.exits.size() == 4);
    REQUIRE(agent.goodbye->survivors == 0);
    REQUIRE(agent.wait_for_end());
  }
}
