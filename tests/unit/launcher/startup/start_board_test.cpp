// SPDX-License-Identifier: Apache-2.0
#include "launcher/startup/start_board.h"

#include <algorithm>
#include <sstream>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/host_failure.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using std::chrono::milliseconds;

const StartBoard::TimePoint kStart{};

StartBoard::TimePoint at(int ms) { return kStart + milliseconds(ms); }

StartBoard board_of_three() {
  StartBoard board(kStart);
  board.name_hosts({"node1", "node2", "node3"});
  board.reach(0, Stage::kResolve, "", at(0));
  board.reach(0, Stage::kConnect, "10.0.0.1:22", at(10));
  board.reach(0, Stage::kAgent, "", at(100));
  board.reach(1, Stage::kConnect, "10.0.0.2:22", at(20));
  board.reach(1, Stage::kAuthenticate, "me", at(500));
  board.reach(2, Stage::kConnect, "10.0.0.3:22", at(30));
  return board;
}

TEST_CASE("The line says how many are ready and who is waited for, the slowest first") {
  const StartBoard board = board_of_three();
  CHECK(board.line(at(1200), 200) ==
        "1 of 3 hosts ready, 1.2 s; node3: connect, node2: authenticate");
  CHECK(board.line(at(1200), 45) == "1 of 3 hosts ready, 1.2 s; node3: connect");
  CHECK(board.line(at(1200), 10).size() == 10);
}

TEST_CASE("Of a host that is not there yet the table has the last reason, and since when") {
  StartBoard board(kStart);
  board.name_hosts({"w-0"});
  board.reach(0, Stage::kResolve, "w-0", at(0));
  board.reach(0, Stage::kAbsent, "its name does not resolve yet", at(10));
  board.reach(0, Stage::kAbsent, "nothing listens on port 22 yet", at(1500));
  CHECK(board.table(at(2010)).find(
            "  w-0   absent        2.0 s     nothing listens on port 22 yet\n") !=
        std::string::npos);
  const std::string text = start_timeout_text(board, at(2010), "ssh {host}");
  CHECK(text.find("w-0 (absent): its engine has not started it") != std::string::npos);
}

TEST_CASE("The table has a row per host") {
  CHECK(board_of_three().table(at(2000)) ==
        "  host   stage         for       last sign\n"
        "  node1  agent         1.9 s     \n"
        "  node2  authenticate  1.5 s     me\n"
        "  node3  connect       2.0 s     10.0.0.3:22\n");
}

TEST_CASE("Of many hosts those that are ready are one row") {
  StartBoard board(kStart);
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("n" + std::to_string(i));
  board.name_hosts(names);
  for (int i = 0; i < 40; ++i) board.reach(i, i == 7 ? Stage::kShell : Stage::kAgent, "", at(i));
  const std::string text = board.table(at(3000));
  CHECK(text.find("  n7 ") != std::string::npos);
  CHECK(text.find("39 more") != std::string::npos);
  CHECK(text.find("n8") == std::string::npos);
}

TEST_CASE("Of a thousand hosts the one that is not ready is named, wherever it is in the list") {
  StartBoard board(kStart);
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back("n" + std::to_string(i));
  board.name_hosts(names);
  for (int i = 0; i < 1000; ++i)
    board.reach(i, i == 700 ? Stage::kShell : Stage::kAgent, "", at(i));
  const std::string text = start_timeout_text(board, at(3000), "ssh");
  CHECK(text.find("  n700       shell") != std::string::npos);
  CHECK(text.find("  999 more") != std::string::npos);
  CHECK(text.find("  n700 (shell): ") != std::string::npos);
}

TEST_CASE("A table of many hosts that are not ready ends, and counts the rest") {
  StartBoard board(kStart);
  board.name_hosts(std::vector<std::string>(1000, "n"));
  for (int i = 0; i < 300; ++i) board.reach(i, Stage::kConnect, "", at(i));
  const std::string text = start_timeout_text(board, at(3000), "ssh");
  CHECK(std::count(text.begin(), text.end(), '\n') < 75);
  CHECK(text.find("  236 more   connect") != std::string::npos);
  CHECK(text.find("  700 more   waiting") != std::string::npos);
  CHECK(text.find("  n and 299 more (connect): ") != std::string::npos);
  CHECK(text.find("  700 hosts have not begun to connect") != std::string::npos);
}

TEST_CASE("What is shown of ten thousand hosts fits on a terminal") {
  constexpr int kHosts = 10'000;
  StartBoard board(kStart);
  std::vector<std::string> names;
  for (int i = 0; i < kHosts; ++i) names.push_back("compute-" + std::to_string(i));
  board.name_hosts(names);
  for (int i = 0; i < kHosts; ++i) {
    const bool late = i % 100 == 99;  // a hundred of them, the last one first
    board.reach(i, late ? Stage::kConnect : Stage::kAgent, "", at(kHosts - i));
  }
  const std::string line = board.line(at(30'000), 80);
  CHECK(line == "9900 of 10000 hosts ready, 30.0 s; compute-9999: connect, compute-9899: connect");
  const std::string text = start_timeout_text(board, at(30'000), "ssh");
  CHECK(std::count(text.begin(), text.end(), '\n') < 80);
  CHECK(text.find("  compute-99 ") != std::string::npos);
  CHECK(text.find("9900 more") != std::string::npos);

  for (int i = 0; i < kHosts; ++i) board.reach(i, Stage::kRanks, "", at(40'000));
  board.stop(at(40'000));
  for (int i = 0; i < kHosts; ++i) {
    board.reach(i, i == 7'777 ? Stage::kRendezvous : Stage::kWork, "", at(41'000));
  }
  CHECK(board.line(at(50'000), 80) == "ranks run on 10000 hosts, 50.0 s; compute-7777: rendezvous");
  const std::string waterfall = board.waterfall();
  CHECK(std::count(waterfall.begin(), waterfall.end(), '\n') < 80);
  CHECK(waterfall.find("and 9968 more hosts\n") != std::string::npos);
}

TEST_CASE("Ranks that meet: those that have not come are waited for") {
  StartBoard board(kStart);
  board.name_hosts({"a", "b", "c"});
  for (int host = 0; host < 3; ++host) board.reach(host, Stage::kRanks, "", at(100));
  CHECK_FALSE(board.meeting());
  board.stop(at(200));
  board.reach(0, Stage::kRendezvous, "", at(300));
  board.reach(1, Stage::kAgent, "", at(300));  // too late to count
  CHECK(board.meeting());
  CHECK(board.line(at(1200), 200) ==
        "ranks run on 3 hosts, 1.2 s; b: ranks, c: ranks, a: rendezvous");
  for (int host = 0; host < 3; ++host) board.reach(host, Stage::kWork, "", at(900));
  CHECK_FALSE(board.meeting());
  const std::string waterfall = board.waterfall();
  CHECK(waterfall.find("| ranks 200.0,\n       rendezvous 600.0, work 0.0\n") != std::string::npos);
  std::istringstream lines(waterfall);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

TEST_CASE("The waterfall has all stages on one scale") {
  StartBoard board = board_of_three();
  CHECK(board.waterfall().empty());
  board.stop(at(1000));
  board.reach(2, Stage::kAgent, "", at(1100));  // too late to count
  const std::string text = board.waterfall();
  CHECK(text.find("resolve 10.0,\n        connect 90.0, agent 900.0\n") != std::string::npos);
  CHECK(text.find("connect 480.0,\n        authenticate 500.0\n") != std::string::npos);
  CHECK(text.find("connect 970.0\n") != std::string::npos);
  CHECK(text.find("1000.0 ms\n") != std::string::npos);
}

TEST_CASE("When time is up every stage in which hosts stand is explained") {
  CHECK(start_timeout_text(board_of_three(), at(2000), "ssh -p 2222") ==
        "  host   stage         for       last sign\n"
        "  node1  agent         1.9 s     \n"
        "  node2  authenticate  1.5 s     me\n"
        "  node3  connect       2.0 s     10.0.0.3:22\n"
        "  node3 (connect): the connection was not answered: the host is down, or a firewall drops "
        "the packets\n"
        "    try: ssh -p 2222 -o ConnectTimeout=5 node3 true\n"
        "  node2 (authenticate): its SSH server has not completed the login: it may wait for a "
        "name server or a directory service\n"
        "    try: ssh -p 2222 -v node2 true\n");
}

TEST_CASE("A server that is busy is not taken for a host that is down") {
  StartBoard board(kStart);
  board.name_hosts({"a", "b"});
  board.reach(0, Stage::kConnect, "10.0.0.1:22", at(10));
  board.reach(1, Stage::kConnect, "10.0.0.2:22", at(10));
  board.reach(1, Stage::kBanner, "the server is busy; retrying in 900 ms", at(20));
  const std::string text = start_timeout_text(board, at(2000), "ssh");
  CHECK(text.find("  b     ssh banner    2.0 s     the server is busy") != std::string::npos);
  CHECK(text.find("  a (connect): the connection was not answered") != std::string::npos);
  CHECK(text.find(
            "  b (ssh banner): the host accepts connections, but its SSH server sends no banner") !=
        std::string::npos);
}

TEST_CASE("Every stage has a cause, and every proof is a whole command") {
  for (int stage = 0; stage <= static_cast<int>(Stage::kRanks); ++stage) {
    INFO(stage);
    CHECK_FALSE(stage_advice(static_cast<Stage>(stage)).cause.empty());
    CHECK_FALSE(stage_name(static_cast<Stage>(stage)).empty());
  }
  for (const FailureClass& row : failure_classes()) {
    INFO(row.code);
    const std::string command = fill_command(row.proof, "ssh", Host{"a", "", {}});
    CHECK(command.find('{') == std::string::npos);
  }
}

TEST_CASE("A proof goes the way that the job went") {
  const Host host{"a", "me", {}};
  CHECK(fill_command("{ssh} -v {host} true", "ssh -p 22", host) == "ssh -p 22 -v me@a true");
  CHECK(fill_command("{ssh} -v {host} true", "kubectl exec -i", Host{"pod", "", {}}) ==
        "kubectl exec -i pod true");
  CHECK(fill_command("getent hosts {host}", "ssh", host) == "getent hosts a");
  JobSpec spec;
  spec.ssh.port = 2222;
  spec.ssh.identity_file = "my key";
  CHECK(reach_words(spec) == "ssh -p 2222 -i 'my key'");
  spec.rsh_command = {"docker", "exec", "-i"};
  CHECK(reach_words(spec) == "docker exec -i");
  spec.rsh_command = {"srun", "--nodelist={host}", "sh", "-c", "{command}"};
  CHECK(fill_command("{ssh} -v {host} true", reach_words(spec), host) ==
        "srun '--nodelist=a' sh -c true");
  CHECK(fill_command("{ssh} {host} 'uptime; dmesg | tail'", reach_words(spec), host) ==
        "srun '--nodelist=a' sh -c 'uptime; dmesg | tail'");
  spec.listen.emplace();
  CHECK(reach_words(spec).empty());
}

}  // namespace
}  // namespace hora::launcher
