// SPDX-License-Identifier: Apache-2.0
// Connecting by name, bounded fan-out, known_hosts: each against the real thing.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <thread>

#include "launcher/failures/failure_code.h"
#include "launcher/transports/agent_link.h"
#include "launcher/transports/io_threads.h"
#include "launcher/transports/pacing.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/transports/shell_run.h"
#if HORA_WITH_SSH
#include "launcher/transports/known_hosts.h"
#include "launcher/transports/ssh_config.h"
#include "launcher/transports/ssh_keys.h"
#include "launcher/transports/tcp_connector.h"
#include "launcher/transports/transport.h"
#endif

namespace hora::launcher {
namespace {

using std::chrono::seconds;

TEST_CASE("no more than the limit are let in, and all in the end") {
  auto loop = std::move(os::EventLoop::create()).value();
  const auto fan_out = std::make_shared<FanOut>(3);
  std::vector<std::unique_ptr<FanOut::Permit>> permits;
  std::vector<int> in;
  const auto turn = [&loop] {
    loop->post([&loop] { loop->stop(); });
    REQUIRE(loop->run());
  };
  for (int i = 0; i < 10; ++i) {
    permits.push_back(std::make_unique<FanOut::Permit>(fan_out, *loop));
    permits.back()->wait([&in, i] { in.push_back(i); });
  }
  CHECK(in.empty());  // from the next turn on
  turn();
  CHECK(in == std::vector<int>{0, 1, 2});
  permits[4].reset();   // one that waits
  permits[1]->leave();  // one that was let in
  turn();
  CHECK(in == std::vector<int>{0, 1, 2, 3});
  permits[0].reset();
  permits[5].reset();  // one that was let in, before it was called
  turn();
  CHECK(in == std::vector<int>{0, 1, 2, 3, 6});
  while (in.size() < 8) {
    const std::size_t before = in.size();
    permits[static_cast<std::size_t>(in.back())]->leave();
    turn();
    REQUIRE(in.size() == before + 1);
  }
  CHECK(in.back() == 9);
}

TEST_CASE("threads of loops start and stop") {
  auto threads = IoThreads::start(3);
  REQUIRE(threads);
  std::atomic<int> ran{0};
  for (int i = 0; i < 300; ++i) (*threads)->loop(i % 3).post([&] { ++ran; });
  (*threads)->stop();
  CHECK(ran == 300);
}

TEST_CASE("a resolver that is closed while it works answers no more") {
  std::atomic<bool> alive{true};
  std::atomic<int> answers{0}, late{0};
  struct AtEnd {
    std::atomic<bool>& flag;
    ~AtEnd() { flag = false; }
  };
  for (int i = 0; i < 50; ++i) {
    alive = true;
    const AtEnd after_the_resolver{alive};
    BlockingCalls resolver{2};
    for (int j = 0; j < 20; ++j) {
      resolver.resolve("localhost", 1, [&](auto) { alive ? ++answers : ++late; });
    }
    if (i == 0) {  // at least this one is waited for
      const auto deadline = Clock::now() + seconds(20);
      while (answers < 20 && Clock::now() < deadline) std::this_thread::yield();
    }
  }
  CHECK(answers >= 20);
  CHECK(late == 0);
}

TEST_CASE("a resolver may be asked while it is closed, and answers no more") {
  for (int i = 0; i < 50; ++i) {
    std::atomic<bool> closed{false}, done{false};
    std::atomic<int> late{0};
    BlockingCalls resolver{2};
    std::thread asker([&] {
      while (!done) resolver.resolve("localhost", 1, [&](auto) { late += closed; });
    });
    std::this_thread::yield();
    resolver.close();
    closed = true;
    resolver.resolve("localhost", 1, [&](auto) { ++late; });
    done = true;
    asker.join();
    CHECK(late == 0);
  }
}

#if HORA_WITH_SSH

struct Listener {
  os::Fd fd;
  int port = 0;
  explicit Listener(const char* address = "127.0.0.1", int wanted = 0) {
    fd = os::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(static_cast<std::uint16_t>(wanted));
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::inet_pton(AF_INET, address, &where.sin_addr);
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof where) == 0);
    REQUIRE(::listen(fd.get(), 16) == 0);
    socklen_t length = sizeof where;
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &length);
    port = ntohs(where.sin_port);
  }
};

// What a connector comes to on a loop of its own.
struct Connected {
  bool ok = false;
  std::string endpoint;
  std::string failed_class;
  std::string problem;
  std::string first;
};

Connected connect(const std::string& host, int port, const std::string& family = "") {
  auto loop = std::move(os::EventLoop::create()).value();
  BlockingCalls resolver{2};
  TcpConnector connector(*loop, resolver);
  Connected result;
  connector.start(
      host, port, family, [&](const std::string& first) { result.first = first; },
      [&](TcpConnector::Outcome outcome) {
        result.ok = outcome.fd.valid();
        result.endpoint = result.ok ? format_endpoint(outcome.endpoint) : "";
        result.failed_class = outcome.failed_class;
        result.problem = outcome.problem;
        loop->stop();
      });
  loop->call_after(seconds(20), [&] { loop->stop(); });
  REQUIRE(loop->run());
  return result;
}

TEST_CASE("a connection by address and by name") {
  const Listener listener;
  const auto numeric = connect("127.0.0.1", listener.port);
  CHECK(numeric.ok);
  CHECK(numeric.endpoint == "127.0.0.1:" + std::to_string(listener.port));
  // localhost may be ::1 first, where no process listens: the next address is tried.
  CHECK(connect("localhost", listener.port).ok);
  CHECK(connect("localhost", listener.port, "inet").ok);
}

TEST_CASE("refused and unknown are distinguished") {
  int port = 0;
  {
    const Listener gone;
    port = gone.port;
  }
  const auto refused = connect("127.0.0.1", port);
  CHECK_FALSE(refused.ok);
  CHECK(refused.failed_class == failure::kRefused);
  CHECK(refused.problem == "127.0.0.1:" + std::to_string(port) + ": Connection refused");
  const auto unknown = connect("no-such-host.invalid", 22);
  CHECK(unknown.failed_class == failure::kResolve);
  const auto family = connect("127.0.0.1", port, "inet6");
  CHECK(family.failed_class == failure::kResolve);
}

// Connects by ssh to a port of this machine until a failure comes; what was reported on the way.
struct SshStart {
  std::mutex mutex;
  std::vector<std::string> absences;
  std::unique_ptr<Transport> transport;
  os::Fd stream;

  SshStart(int port, bool hosts_come_late, Clock::time_point deadline) {
    SshTransportOptions options;
    options.ssh.port = port;
    options.ssh.config_file = "/dev/null";
    options.io_threads = 1;
    options.hosts_come_late = hosts_come_late;
    transport = make_ssh_transport(options, [this](int, Stage stage, std::string_view detail) {
      const std::lock_guard lock(mutex);
      if (stage == Stage::kAbsent) absences.emplace_back(detail);
    });
    AgentImage image;
    image.builds = {{"x86_64", "/bin/true", std::string(64, '0'), ""}};
    auto started = transport->start({"127.0.0.1", "", {}}, 0, image, deadline);
    REQUIRE(started);
    stream = *std::move(started);
  }
  std::size_t times_absent() {
    const std::lock_guard lock(mutex);
    return absences.size();
  }
  // Of the stream, which ends with it.
  std::string failure() {
    std::string all;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::read(stream.get(), bytes, sizeof bytes)) > 0;) {
      all.append(bytes, static_cast<std::size_t>(got));
    }
    return all;
  }
};

int unused_port() { return Listener().port; }

TEST_CASE("ssh: a host that comes late is tried again until it is there") {
  const int port = unused_port();
  SshStart start(port, true, Clock::now() + seconds(60));
  const auto limit = Clock::now() + seconds(30);
  while (start.times_absent() < 3 && Clock::now() < limit) std::this_thread::yield();
  REQUIRE(start.times_absent() >= 3);
  CHECK(start.absences.front() == "nothing listens on port " + std::to_string(port) + " yet");
  const Listener come("127.0.0.1", port);
  os::Fd taken(::accept4(come.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(::write(taken.get(), "HTTP/1.0 400 Bad Request\r\n\r\n", 28) == 28);
  taken.reset();
  CHECK(start.failure().find(failure::kSshProtocol) != std::string::npos);
}

TEST_CASE("ssh: without time left, and where hosts are there from the start, none is waited for") {
  const int port = unused_port();
  SshStart late(port, true, Clock::now());
  CHECK(late.failure().find(failure::kRefused) != std::string::npos);
  CHECK(late.times_absent() >= 1);
  SshStart at_once(port, false, Clock::now() + seconds(60));
  CHECK(at_once.failure().find(failure::kRefused) != std::string::npos);
  CHECK(at_once.times_absent() == 0);
}

TEST_CASE("known_hosts: many writers at once, each line whole and once") {
  const test::TemporaryDirectory folder;
  const std::string path = folder.path() + "/new/known_hosts";
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&path, i] {
      for (int j = 0; j < 20; ++j) {
        // Each host by two writers.
        const auto added = add_known_host(path, "host" + std::to_string(i / 2 * 100 + j),
                                          ssh_string("ssh-x"), /*hash=*/false);
        if (!added) std::abort();
      }
    });
  }
  for (auto& writer : writers) writer.join();
  std::ifstream file(path);
  std::set<std::string> lines;
  int count = 0;
  for (std::string line; std::getline(file, line); ++count) lines.insert(line);
  CHECK(count == 80);
  CHECK(lines.size() == 80);
}

TEST_CASE("known_hosts: a last line without its end is not joined") {
  const test::TemporaryDirectory folder;
  const std::string path = folder.path() + "/known_hosts";
  std::ofstream(path) << "old ssh-x BBBB";
  REQUIRE(add_known_host(path, "new", ssh_string("ssh-x"), /*hash=*/false));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str() == "old ssh-x BBBB\nnew ssh-x AAAABXNzaC14\n");
  CHECK_FALSE(add_known_host("/proc/no/known_hosts", "x", ssh_string("ssh-x"), false));
}

TEST_CASE("options come before the config, the config before the defaults") {
  const test::TemporaryDirectory folder;
  const std::string config = folder.path() + "/config";
  const std::string key = folder.path() + "/key";
  std::ofstream(key) << "k";
  std::ofstream(config) << "Host b\n HostName %h.example\n Port 2222\n User carl\n IdentityFile "
                        << key << "\n IdentityFile /missing/%h\n ProxyJump one,dan@two:7\n"
                        << " UserKnownHostsFile /x/k\n ConnectTimeout 3\n";
  SshOptions options;
  options.config_file = config;
  auto target = SshTargets(options).target_of({"b", "", {}});
  REQUIRE(target);
  CHECK(target->address == "b.example");
  CHECK(target->host_keys.known_as == "b.example");
  CHECK(target->port == 2222);
  CHECK(target->user == "carl");
  CHECK(target->keys.files == std::vector<std::string>{key});
  CHECK(target->keys.missing == std::vector<std::string>{"/missing/b.example"});
  CHECK(target->route.proxy == std::vector<std::string>{"ssh", "-o", "BatchMode=yes", "-F",
                                                        options.config_file, "-J", "one", "-p", "7",
                                                        "-W", "[b.example]:2222", "--", "dan@two"});
  CHECK(target->host_keys.known_hosts_files.front() == "/x/k");
  CHECK(target->route.connect_timeout == seconds(3));
  CHECK(target->host_keys.checking == HostKeyChecking::kYes);

  options.port = 99;
  options.accept_new_host_keys = true;
  auto other = SshTargets(options).target_of({"b", "eve", {}});
  REQUIRE(other);
  CHECK(other->port == 99);
  CHECK(other->user == "eve");
  CHECK(other->host_keys.checking == HostKeyChecking::kAcceptNew);

  options.identity_file = "/no/such/key";
  CHECK_FALSE(SshTargets(options).target_of({"b", "", {}}));
  options.identity_file = "";
  options.config_file = "/no/such/config";
  CHECK_FALSE(SshTargets(options).target_of({"b", "", {}}));
}

#endif

}  // namespace
}  // namespace hora::launcher
