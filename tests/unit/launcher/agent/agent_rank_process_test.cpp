// SPDX-License-Identifier: Apache-2.0
// What a rank finds around itself: arguments, environment, directory, descriptors, signals.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "launcher/process/one_cpu.h"
#include "launcher/process/spawn.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"
#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/agent/packing.h"

using namespace hora::launcher;
using namespace hora::test;
namespace fs = std::filesystem;

namespace {

// The records of report_rank, by kind.
std::map<char, std::vector<std::string>> parse_report(std::string_view text) {
  std::map<char, std::vector<std::string>> records;
  while (!text.empty()) {
    const std::size_t end = text.find('\0');
    REQUIRE(end != std::string_view::npos);
    records[text.front()].emplace_back(text.substr(1, end - 1));
    text.remove_prefix(end + 1);
  }
  return records;
}

std::map<char, std::vector<std::string>> report_of(const HostOrder& order) {
  AgentDriver agent;
  agent.run(order);
  INFO(agent.exits.at(0).code);
  REQUIRE(agent.exits.at(0).exit_code == 0);
  return parse_report(agent.output[{0, 1}]);
}

bool holds(const std::vector<std::string>& entries, const std::string& entry) {
  return std::find(entries.begin(), entries.end(), entry) != entries.end();
}

int count_of(const std::vector<std::string>& entries, const std::string& name) {
  return static_cast<int>(std::count_if(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.rfind(name + "=", 0) == 0;
  }));
}

std::string every_byte() {
  std::string bytes;
  for (int c = 1; c < 256; ++c) bytes.push_back(static_cast<char>(c));
  return bytes;
}

}  // namespace

TEST_CASE("arguments of any bytes") {
  auto order = make_order({HORA_TEST_REPORT_RANK, "", " ", "a b", "'\"$(id)`id`\\", "\n\r\t",
                           every_byte(), "-n", "--", "*", std::string(100'000, 'x')});
  CHECK((report_of(order)['A'] == order.argv));
}

TEST_CASE("an environment of any bytes, and nothing else") {
  auto order = make_order({HORA_TEST_REPORT_RANK});
  order.environment = {{"PLAIN", "value"},
                       {"EMPTY", ""},
                       {"with.dots-and-dashes", "x"},
                       {"BASH_FUNC_f%%", "() { :; }"},
                       {"BYTES", every_byte()},
                       {"NEWLINE\n", "a\nb"},
                       {"EQUALS", "a=b=c"},
                       {"\xff\xfe", "\xff"}};
  order.ranks[0].environment = {{"RANK", "0"}, {"PLAIN", "the rank's own"}};
  const auto entries = report_of(order)['E'];
  CHECK(holds(entries, "PLAIN=the rank's own"));
  CHECK(holds(entries, "EMPTY="));
  CHECK(holds(entries, "with.dots-and-dashes=x"));
  CHECK(holds(entries, "BASH_FUNC_f%%=() { :; }"));
  CHECK(holds(entries, "BYTES=" + every_byte()));
  CHECK(holds(entries, "NEWLINE\n=a\nb"));
  CHECK(holds(entries, "EQUALS=a=b=c"));
  CHECK(holds(entries, "\xff\xfe=\xff"));
  CHECK(holds(entries, "HORA_JOB_ID=" + order.job_id));
  CHECK(count_of(entries, "HORA_AGENT_MARK") == 1);
  CHECK(count_of(entries, "HORA_FLIGHT_RECORDER") == 1);
  CHECK(count_of(entries, "PLAIN") == 1);
  CHECK(holds(entries, "PWD=/"));
  CHECK(holds(entries, "PATH=/usr/local/bin:/usr/bin:/bin"));  // programs expect one
  CHECK(entries.size() == 16);
}

TEST_CASE("two megabytes of environment in five thousand names") {
  auto order = make_order({HORA_TEST_REPORT_RANK});
  order.environment.clear();
  for (int i = 0; i < 5'000; ++i) {
    order.environment.emplace_back("HORA_TEST_VARIABLE_" + std::to_string(i),
                                   std::string(375, static_cast<char>('a' + i % 26)));
  }
  const auto entries = report_of(order)['E'];
  std::size_t size = 0;
  for (const auto& [name, value] : order.environment) {
    CHECK(holds({entries[size]}, name + "=" + value));
    ++size;
  }
}

TEST_CASE("an environment that the machine does not take") {
  AgentDriver agent;
  auto order = make_order({"true"});
  order.environment.emplace_back("HUGE", std::string(3'000'000, 'x'));
  agent.run(order);
  CHECK(agent.exits.at(0).exit_code == 126);
  CHECK(agent.exits.at(0).stage == SpawnStage::kExecute);
  CHECK(agent.exits.at(0).errnum == E2BIG);
}

TEST_CASE("variables that cannot be") {
  auto order = make_order({"true"});
  SECTION("an empty name") { order.environment.emplace_back("", "x"); }
  SECTION("a name with '='") { order.environment.emplace_back("a=b", "x"); }
  SECTION("a name with NUL") { order.environment.emplace_back(std::string("a\0b", 3), "x"); }
  SECTION("a value with NUL") { order.environment.emplace_back("a", std::string("x\0y", 3)); }
  SECTION("of one rank") { order.ranks[0].environment.emplace_back("a=b", "x"); }
  AgentDriver agent;
  agent.send_order(order);
  CHECK(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_USAGE");
}

TEST_CASE("a stray variable does not replace what the agent sets") {
  auto order = make_order({HORA_TEST_REPORT_RANK});
  order.environment.emplace_back("HORA_JOB_ID", "stray");
  order.environment.emplace_back("HORA_AGENT_MARK", "stray");
  order.ranks[0].environment.emplace_back("HORA_JOB_ID", "stray");
  const auto entries = report_of(order)['E'];
  CHECK(holds(entries, "HORA_JOB_ID=" + order.job_id));
  CHECK(count_of(entries, "HORA_JOB_ID") == 1);
  CHECK(!holds(entries, "HORA_AGENT_MARK=stray"));
}

TEST_CASE("variables that the host has itself") {
  ::setenv("HORA_TEST_OWN_A", "from the host", 1);
  ::setenv("HORA_TEST_OWN_B", "from the host", 1);
  ::setenv("HORA_TEST_OTHER", "from the host", 1);
  auto order = make_order({HORA_TEST_REPORT_RANK});
  ::setenv("HORA_TEST_OWN_PLACE", "from the host", 1);
  ::setenv("HORA_TEST_OWN_PLACES", "from the host", 1);
  order.own_variables = {"HORA_TEST_OWN*", "!HORA_TEST_OWN_PLACE*", "HORA_TEST_OWN_PLACES"};
  order.environment.emplace_back("HORA_TEST_OWN_B", "from the order");
  const auto entries = report_of(order)['E'];
  CHECK(holds(entries, "HORA_TEST_OWN_A=from the host"));
  CHECK(holds(entries, "HORA_TEST_OWN_B=from the order"));
  CHECK(count_of(entries, "HORA_TEST_OTHER") == 0);
  CHECK(count_of(entries, "HORA_TEST_OWN_PLACE") == 0);
  CHECK(holds(entries, "HORA_TEST_OWN_PLACES=from the host"));
}

TEST_CASE("paths are prepended") {
  auto order = make_order({HORA_TEST_REPORT_RANK});
  order.environment.emplace_back("SET", "/x:/y");
  order.environment.emplace_back("BLANK", "");
  order.prepend_paths = {
      {"SET", "/a"}, {"SET", "/b"}, {"BLANK", "/a"}, {"UNSET", "/a"}, {"OWN", "/a"}};
  order.ranks[0].environment.emplace_back("OWN", "/r");
  const auto entries = report_of(order)['E'];
  CHECK(holds(entries, "SET=/a:/b:/x:/y"));
  CHECK(holds(entries, "BLANK=/a"));
  CHECK(holds(entries, "UNSET=/a"));
  CHECK(holds(entries, "OWN=/a:/r"));
}

TEST_CASE("working directories") {
  TemporaryDirectory directory;
  std::string name;
  SECTION("a plain one") { name = "plain"; }
  SECTION("with blanks and quotes") { name = " a 'b' \"c\" $(d)"; }
  SECTION("with a line feed") { name = "a\nb"; }
  SECTION("with bytes that are not UTF-8") { name = "\xff\x01"; }
  fs::create_directory(directory / name);
  auto order = make_order({HORA_TEST_REPORT_RANK});
  order.working_directory = directory / name;
  CHECK(report_of(order)['C'] == std::vector<std::string>{directory / name});
}

TEST_CASE("working directories that will not do") {
  TemporaryDirectory directory;
  write_file(directory / "file", "");
  auto order = make_order({"true"});
  SECTION("empty") { order.working_directory = ""; }
  SECTION("a file") { order.working_directory = directory / "file"; }
  SECTION("missing") { order.working_directory = directory / "missing"; }
  AgentDriver agent;
  agent.send_order(order);
  CHECK(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_CWD");
  CHECK(agent.failure->message.find("'" + order.working_directory + "'") != std::string::npos);
}

TEST_CASE("a program is found relative to the working directory and by PATH") {
  TemporaryDirectory directory;
  fs::create_directories(directory / "sub/bin");
  fs::create_symlink(HORA_TEST_REPORT_RANK, directory / "sub/bin/reporter");
  auto order = make_order({"bin/reporter"});
  order.working_directory = directory / "sub";
  SECTION("by a relative path") {}
  SECTION("by an absolute PATH") {
    order.argv = {"reporter"};
    order.environment = {{"PATH", "/nowhere:" + (directory / "sub/bin")}};
  }
  SECTION("by a relative PATH") {
    order.argv = {"reporter"};
    order.environment = {{"PATH", "bin"}};
  }
  SECTION("by the rank's own PATH") {
    order.argv = {"reporter"};
    order.ranks[0].environment = {{"PATH", directory / "sub/bin"}};
  }
  CHECK(report_of(order)['A'] == order.argv);
}

TEST_CASE("a script without an interpreter line runs in a shell") {
  TemporaryDirectory directory;
  write_file(directory / "script", "echo \"$0 $*\"\n");
  fs::permissions(directory / "script", fs::perms::owner_all);
  AgentDriver agent;
  agent.run(make_order({directory / "script", "a b", "c"}));
  CHECK(agent.output[{0, 1}] == (directory / "script") + " a b c\n");
}

TEST_CASE("a binary of another machine, a missing interpreter") {
  TemporaryDirectory directory;
  int code = 126;
  int errnum = ENOEXEC;
  auto stage = SpawnStage::kInterpreter;
  std::string interpreter;
  std::string wanted;
  SECTION("binary") {
    stage = SpawnStage::kExecute;
    write_file(directory / "x", std::string("\x7f"
                                            "ELF\0\0\0\0garbage",
                                            15));
  }
  SECTION("interpreter") {
    write_file(directory / "x", "#! /no/such/interpreter -x\n");
    code = 127;
    errnum = ENOENT;
    interpreter = "/no/such/interpreter";
  }
  SECTION("interpreter, in a file of Windows") {
    write_file(directory / "x", "#!/bin/sh\r\necho hi\r\n");
    code = 127;
    errnum = ENOENT;
    interpreter = "/bin/sh\r";
  }
  SECTION("interpreter of a name that the kernel does not read to its end") {
    write_file(directory / "x", "#!/" + std::string(300, 'a') + "\n");
  }
  SECTION("loader of an executable") {
    std::string bytes = hora::os::read_file("/proc/self/exe").value();
    const std::size_t at = bytes.find("/ld-linux");
    REQUIRE(at < bytes.size());
    bytes.replace(at, 4, "/no-");
    write_file(directory / "x", bytes);
    code = 127;
    errnum = ENOENT;
    interpreter = bytes.substr(bytes.rfind('\0', at) + 1).c_str();
    wanted = "E_LOADER";
  }
  SECTION("no interpreter behind the mark of one") { write_file(directory / "x", "#!\n"); }
  fs::permissions(directory / "x", fs::perms::owner_all);
  AgentDriver agent;
  agent.run(make_order({directory / "x"}));
  CHECK(agent.exits.at(0).exit_code == code);
  if (wanted.empty()) wanted = code == 127 ? "E_INTERPRETER" : "E_NOT_EXECUTABLE";
  CHECK(agent.exits.at(0).code == wanted);
  CHECK(agent.exits.at(0).stage == stage);
  CHECK(agent.exits.at(0).errnum == errnum);
  CHECK(agent.exits.at(0).interpreter == interpreter);
}

TEST_CASE("a rank has three descriptors, default signals, and a session of its own") {
  // The launcher's side is untidy on purpose.
  const hora::os::Fd leaked(::open("/dev/null", O_RDONLY));  // NOLINT(android-cloexec-open)
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGUSR1, SIG_IGN);
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
  auto records = report_of(make_order({HORA_TEST_REPORT_RANK}, 1));
  ::sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
  ::signal(SIGHUP, SIG_DFL);
  ::signal(SIGUSR1, SIG_DFL);
  std::sort(records['F'].begin(), records['F'].end());
  CHECK(records['F'] == std::vector<std::string>{"0", "1", "2"});
  CHECK(records['S'].empty());
  CHECK(records['P'] == std::vector<std::string>{"1"});
  CHECK(records['I'] == std::vector<std::string>{"1"});
}

TEST_CASE("ranks that are more than the CPUs share a session, which is not the shim's") {
  std::unique_ptr<OneCpu> one_cpu;
  bool shared = true;
  SECTION("one CPU") { one_cpu = OneCpu::stay(); }
  SECTION("a CPU for each") { shared = count_cpus(cpu_mask_of_this_thread()) < 2; }
  AgentDriver agent;
  one_cpu.reset();
  agent.start(shell_order("echo up; exec sleep 1000", 2));
  const pid_t leader = agent.agent();
  CHECK(::getsid(leader) == (shared ? leader : agent.shim()));
  for (int rank = 0; rank < 2; ++rank) {
    const pid_t pid = agent.pids.at(rank);
    CHECK(::getsid(pid) == (shared ? leader : pid));
    CHECK(::getpgid(pid) == pid);
  }
  agent.send_number(FrameType::kTerminate, 1'000);
  agent.wait_for_goodbye();
  for (int rank = 0; rank < 2; ++rank) CHECK(agent.exits.at(rank).signal == SIGTERM);
}

TEST_CASE("a rank that has joined another group of its session is reached all the same") {
  const auto one_cpu = OneCpu::stay();
  AgentDriver agent;
  const std::string join =
      "import os, signal\n"
      "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
      "os.setpgid(0, os.getpgid(os.getppid()))\n"
      "print('up', flush=True)\n"
      "while signal.sigwait([signal.SIGUSR1]): print('usr1', flush=True)";
  agent.start(make_order({"python3", "-c", join}, 2));
  for (int rank = 0; rank < 2; ++rank) agent.wait_for_output(rank, "up");
  SECTION("by a signal for all") {
    agent.send_number(FrameType::kSignal, SIGUSR1);
    for (int rank = 0; rank < 2; ++rank) agent.wait_for_output(rank, "usr1");
  }
  SECTION("by a signal for it") {
    std::string payload = u32_payload(1);
    append_u32(payload, SIGUSR1);
    agent.send(FrameType::kSignalRank, payload);
    agent.wait_for_output(1, "usr1");
  }
  SECTION("when it alone is ended") {
    std::string payload = u32_payload(1);
    append_u32(payload, 60'000);
    agent.send(FrameType::kEndRank, payload);
    agent.wait_for(FrameType::kExit);
    CHECK(agent.exits.at(1).signal == SIGTERM);
  }
  agent.send_number(FrameType::kTerminate, 60'000);
  agent.wait_for_goodbye();
  CHECK(agent.exits.at(0).signal == SIGTERM);
}

TEST_CASE("descriptors of many ranks do not leak into one another") {
  AgentDriver agent;
  agent.run(make_order({HORA_TEST_REPORT_RANK}, 32));
  for (int rank = 0; rank < 32; ++rank) {
    auto records = parse_report(agent.output[{rank, 1}]);
    CHECK(records['F'].size() == 3);
  }
}

TEST_CASE("a low soft limit of open files is raised for the agent and kept for the ranks") {
  const hora::test::DescriptorLimit limit(64, 4096);
  AgentDriver agent;
  agent.run(make_order({HORA_TEST_REPORT_RANK}, 64));
  REQUIRE(agent.exits.size() == 64);
  for (int rank = 0; rank < 64; ++rank) {
    CHECK(agent.exits.at(rank).exit_code == 0);
    CHECK(parse_report(agent.output[{rank, 1}])['L'] == std::vector<std::string>{"64"});
  }
}

TEST_CASE("a low hard limit of open files is an error that names the need") {
  if (::geteuid() != 0) return;  // nothing else could raise it again afterwards
  const hora::test::DescriptorLimit limit(64, 64);
  AgentDriver agent;
  agent.send_order(make_order({"true"}, 64));
  CHECK(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_USAGE");
  CHECK(agent.failure->message.find("64 ranks need 240 open files") != std::string::npos);
}

TEST_CASE("an agent whose streams are closed or are not streams") {
  const std::string path = agent_path();
  const hora::os::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto run = [&](const std::string& redirections) {
    const std::string line = "timeout 20 '" + path + "' agent " + redirections;
    return WEXITSTATUS(std::system(line.c_str()));
  };
  CHECK(run("<&- 2>/dev/null") == 125);
  CHECK(run(">&- </dev/null 2>/dev/null") == 125);
  CHECK(run("</dev/null >/dev/null 2>/dev/null") == 125);
  CHECK(run("</etc/passwd >/dev/null 2>&-") == 125);
  // A stream that has ended already: nothing to do.
  const std::string line = ": | timeout 20 '" + path + "' agent 2>&- | tail -c 1 >/dev/null";
  CHECK(std::system(line.c_str()) == 0);
}
