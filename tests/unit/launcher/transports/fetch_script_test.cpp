// SPDX-License-Identifier: Apache-2.0
// A host's shell fetches the agent from another host: real shells and programs, and sources that
// serve, are silent, break off or lie.
#include "launcher/transports/fetch_script.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "launcher/transports/bootstrap.h"
#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/transports/shell_run.h"

namespace hora::launcher {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using test::run_program;
using test::TemporaryDirectory;

const std::string kToken = "0123456789abcdef0123456789abcdef";

// Stands in for the agent: says where it was started from. Larger than a pipe.
const std::string kAgent = "#!/bin/sh\nprintf '\\001HORA-AGENT-1\\n'; echo \"$0\"; exit\n" +
                           std::string(200'000, '#') + '\n';

std::string sha256(const std::string& bytes) {
  return run_program({"sha256sum"}, bytes).out.substr(0, 64);
}

// Accepts every peer, one at a time, and does with each what the test says.
class Source {
 public:
  using Serve = std::function<void(const Source& self, int fd)>;
  explicit Source(Serve serve) : serve_(std::move(serve)) {
    listener_ = net::listen_tcp({*parse_ip_address("127.0.0.1"), 0}).value();
    port_ = net::local_endpoint(listener_.get())->port;
    thread_ = std::thread([this] { run(); });
  }
  ~Source() {
    ends_ = true;
    thread_.join();
  }
  int port() const { return port_; }
  bool ends() const { return ends_; }
  // Until the test ends, or the peer goes.
  void hold(int fd) const {
    while (!ends_ && !net::wait_readable(fd, Clock::now() + 10ms, "the end")) {
    }
  }
  static void send(int fd, const std::string& bytes) {
    (void)net::send_all(fd, bytes, Clock::now() + 20s);
  }

 private:
  void run() {
    const std::string line = "HORA-IMAGE-1 " + kToken + "\n";
    while (!ends_) {
      if (!net::wait_readable(listener_.get(), Clock::now() + 10ms, "a peer")) continue;
      auto accepted = net::accept_tcp(listener_.get());
      if (!accepted || !*accepted) continue;
      const int fd = (*accepted)->fd.get();
      std::string heard(line.size(), '\0');
      std::size_t have = 0;
      while (have < line.size()) {
        const auto got =
            net::receive_some(fd, heard.data() + have, line.size() - have, Clock::now() + 20s);
        if (!got || *got == 0) break;
        have += *got;
      }
      if (heard == line) serve_(*this, fd);
    }
  }

  Serve serve_;
  os::Fd listener_;
  int port_ = 0;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// A port without answer: enough connections wait to be accepted that the kernel drops the next one.
class DeadPort {
 public:
  DeadPort() {
    listener_ = net::listen_tcp({*parse_ip_address("127.0.0.1"), 0}, 0).value();
    const Endpoint here = *net::local_endpoint(listener_.get());
    port_ = here.port;
    while (auto peer = net::connect_tcp(here, Clock::now() + 200ms)) {
      waiting_.push_back(std::move(*peer));
    }
  }
  int port() const { return port_; }

 private:
  os::Fd listener_;
  std::vector<os::Fd> waiting_;
  int port_ = 0;
};

// A host with a shell and programs of the test's choice.
class HostShell {
 public:
  // `tools`: which of bash, nc and python3 it has; sha256sum unless it is left out.
  HostShell(const std::vector<std::string>& sh, const std::vector<std::string>& tools,
            bool has_sha256sum = true, bool force = false) {
    fs::create_directories(bin());
    for (const std::string tool :
         {"cat", "chmod", "head", "id", "ln", "mkdir", "mv", "rm", "setsid", "uname", "wc"}) {
      fs::create_symlink("/bin/busybox", bin() + tool);
    }
    if (has_sha256sum) fs::create_symlink("/bin/busybox", bin() + "sha256sum");
    for (const std::string& tool : tools) {
      fs::create_symlink(tool == "nc" ? "/bin/busybox" : "/usr/bin/" + tool, bin() + tool);
    }
    BootstrapRequest request;
    std::string machine = run_program({"uname", "-m"}).out;
    machine.pop_back();
    request.builds = {{machine, sha256(kAgent), kAgent.size(), ""}};
    request.nonce = "n0nce";
    request.force = force;
    request.for_sh = true;
    std::vector<std::string> argv = sh;
    argv[0] = fs::exists("/bin/" + sh[0]) ? "/bin/" + sh[0] : "/usr/bin/" + sh[0];
    argv.push_back("_m=; " + bootstrap_line(request).value());
    spawn(argv);
  }
  ~HostShell() {
    stdin_.reset();
    stdout_.reset();
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  std::string cache() const { return home_.path() + "/.cache/hora"; }
  std::string agent() const { return cache() + "/agent-" + sha256(kAgent); }
  std::string started() const { return std::string(kAgentMagic) + agent() + "\n"; }

  void say(const std::string& bytes) {
    REQUIRE(::write(stdin_.get(), bytes.data(), bytes.size()) ==
            static_cast<ssize_t>(bytes.size()));
  }
  void offer(int number, int port, std::vector<std::string> addresses = {"127.0.0.1"}) {
    say(fetch_order({number, std::move(addresses), port, kToken}));
  }
  // Reads until the text has come; says all that has come since.
  std::string hear(const std::string& text) {
    const auto deadline = Clock::now() + 20s;
    char buffer[4096];
    while (heard_.find(text) == std::string::npos) {
      const Status readable = net::wait_readable(stdout_.get(), deadline, text);
      const ssize_t got = readable ? ::read(stdout_.get(), buffer, sizeof buffer) : 0;
      if (got <= 0) FAIL("'" << text << "' did not come, but: " << heard_);
      heard_.append(buffer, static_cast<std::size_t>(got));
    }
    const std::size_t end = heard_.find(text) + text.size();
    std::string said = heard_.substr(0, end);
    heard_.erase(0, end);
    return said;
  }
  void ask() { hear("need "), hear(" " + cache() + "\n"), say(fetch_script()); }
  void close_input() { stdin_.reset(); }
  void send_signal(int number) { ::kill(pid_, number); }

  // Waits for its end, and for that of all that it has started.
  void await_end() {
    const auto deadline = Clock::now() + 20s;
    while (::waitpid(pid_, nullptr, WNOHANG) == 0 && Clock::now() < deadline) ::usleep(1'000);
    // One look decides: a process that is about to be replaced has no environment for a moment.
    std::vector<pid_t> left = others();
    while (!left.empty() && Clock::now() < deadline) ::usleep(1'000), left = others();
    CHECK(left == std::vector<pid_t>());
    pid_ = -1;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(cache(), none)) {
      names.push_back(entry.path().filename());
    }
    return names;
  }
  // What it has started, in whatever session: all has its folder in the environment.
  std::vector<pid_t> others() const {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      if (pid > 0 && pid != pid_ && environment_of(pid).find(home_.path()) != std::string::npos) {
        found.push_back(pid);
      }
    }
    return found;
  }
  // Whether an argument of a process, or its environment, has the text.
  bool shows(const std::string& text) const {
    for (const pid_t pid : others()) {
      for (const char* name : {"/cmdline", "/environ"}) {
        std::ifstream file("/proc/" + std::to_string(pid) + name);
        const std::string all{std::istreambuf_iterator<char>(file), {}};
        if (all.find(text) != std::string::npos) return true;
      }
    }
    return false;
  }

 private:
  static std::string environment_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string bin() const { return home_.path() + "/bin/"; }

  void spawn(const std::vector<std::string>& argv) {
    ::signal(SIGPIPE, SIG_IGN);
    int in[2], out[2];
    REQUIRE((::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0));
    stdin_ = os::Fd(in[1]);
    stdout_ = os::Fd(out[0]);
    const os::Fd read_end(in[0]), write_end(out[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const std::string path = "PATH=" + bin(), home = "HOME=" + home_.path(),
                      temporary = "TMPDIR=" + home_.path();
    std::vector<char*> words, variables;
    for (const auto& word : argv) words.push_back(const_cast<char*>(word.c_str()));
    for (const auto* each : {&path, &home, &temporary}) {
      variables.push_back(const_cast<char*>(each->c_str()));
    }
    words.push_back(nullptr);
    variables.push_back(nullptr);
    REQUIRE(::posix_spawn(&pid_, words[0], &actions, nullptr, words.data(), variables.data()) == 0);
    posix_spawn_file_actions_destroy(&actions);
  }

  TemporaryDirectory home_;
  pid_t pid_ = -1;
  os::Fd stdin_, stdout_;
  std::string heard_;
};

const std::vector<std::string> kSh = {"sh", "-c"};

// What can fetch where the shell is this one: busybox's has an nc of its own, before any Python.
std::vector<std::string> tools_with(const std::vector<std::string>& shell) {
  if (shell[0] == "busybox") return {"bash", "nc"};
  return {"bash", "nc", "python3"};
}

// zsh is sh only when called by that name; posh has no `test -O`, and is not a system's sh.
std::vector<std::vector<std::string>> system_shells() {
  auto shells = test::shells_here(true);
  std::erase_if(shells, [](const auto& each) { return each[0] == "zsh" || each[0] == "posh"; });
  return shells;
}

}  // namespace

TEST_CASE("a host fetches the agent with whatever it has, in every shell") {
  const Source source([](const Source&, int fd) { Source::send(fd, kAgent); });
  for (const auto& shell : system_shells()) {
    for (const std::string& tool : tools_with(shell)) {
      INFO(shell[0] << ", " << tool);
      HostShell host(shell, {tool});
      host.ask();
      host.offer(1, source.port());
      host.hear("HORA-n0nce open 1\n");
      host.hear("HORA-n0nce got 1\n");
      host.say(fetch_accepted());
      host.hear(host.started());
      host.await_end();
      CHECK(host.files() == std::vector<std::string>{"agent-" + sha256(kAgent)});
    }
  }
}

TEST_CASE("a host that lacks the programs says so, and is sent the agent") {
  const bool has_sha256sum = GENERATE(true, false);
  for (const auto& shell : system_shells()) {
    if (shell[0] == "busybox") continue;  // its own programs come before those of any folder
    INFO(shell[0]);
    HostShell host(shell,
                   has_sha256sum ? std::vector<std::string>{} : std::vector<std::string>{"bash"},
                   has_sha256sum);
    host.ask();
    host.hear("HORA-n0nce miss 0 tools\n");
    host.say(transfer_header(false, kAgent.size()));
    std::thread sending([&host] { host.say(kAgent); });
    host.hear(host.started());
    sending.join();
    host.await_end();
  }
}

TEST_CASE("what is not the agent is not used") {
  std::string reason;
  Source::Serve serve;
  SECTION("other bytes") {
    serve = [](const Source&, int fd) { Source::send(fd, std::string(kAgent.size(), 'x')); };
    reason = "hash";
  }
  SECTION("fewer bytes") {
    serve = [](const Source&, int fd) { Source::send(fd, kAgent.substr(0, 100'000)); };
    reason = "short";
  }
  SECTION("nothing") {
    serve = [](const Source&, int) {};
    reason = "reach";
  }
  const Source source(serve);
  for (const std::string tool : {"bash", "nc", "python3"}) {
    INFO(tool);
    HostShell host(kSh, {tool});
    host.ask();
    host.offer(7, source.port());
    host.hear("HORA-n0nce miss 7 " + reason + "\n");
    // Another host has it.
    const Source other([](const Source&, int fd) { Source::send(fd, kAgent); });
    host.offer(8, other.port());
    host.hear("HORA-n0nce got 8\n");
    host.say(fetch_accepted());
    host.hear(host.started());
    host.await_end();
  }
}

TEST_CASE("a source that sends without end fills no disk") {
  const std::string much(1u << 20, 'x');
  const Source source([&](const Source& self, int fd) {
    while (!self.ends() && net::send_all(fd, much, Clock::now() + 20s)) {
    }
  });
  for (const std::string tool : {"bash", "nc", "python3"}) {
    INFO(tool);
    HostShell host(kSh, {tool});
    host.ask();
    host.offer(1, source.port());
    host.hear("HORA-n0nce miss 1 ");
    for (const std::string& name : host.files()) {
      CHECK(fs::file_size(host.cache() + "/" + name) <= 3 * kAgent.size());
    }
    host.close_input();
    host.await_end();
    CHECK(host.files().empty());
  }
}

TEST_CASE("of several addresses the first one that serves is taken") {
  const Source source([](const Source&, int fd) { Source::send(fd, kAgent); });
  HostShell host(kSh, {"bash"});
  host.ask();
  host.offer(1, source.port(), {"127.0.0.2", "::1", "127.0.0.1"});
  host.hear("HORA-n0nce got 1\n");
  host.say(fetch_accepted());
  host.hear(host.started());
  host.await_end();
}

TEST_CASE("the launcher ends an attempt at a silent source") {
  const Source source([](const Source& self, int fd) {
    Source::send(fd, kAgent.substr(0, 10));
    self.hold(fd);
  });
  const Source other([](const Source&, int fd) { Source::send(fd, kAgent); });
  const std::string by = GENERATE("sending", "naming another one", "its own end", "a signal");
  for (const auto& shell : system_shells()) {
    for (const std::string& tool : tools_with(shell)) {
      INFO(shell[0] << ", " << tool << ", by " << by);
      HostShell host(shell, {tool});
      host.ask();
      host.offer(1, source.port());
      host.hear("HORA-n0nce open 1\n");
      std::vector<std::string> left;
      if (by == "sending") {
        host.say(transfer_header(false, kAgent.size()));
        std::thread sending([&host] { host.say(kAgent); });
        host.hear(host.started());
        sending.join();
        left = {"agent-" + sha256(kAgent)};
      } else if (by == "naming another one") {
        host.offer(2, other.port());
        host.hear("HORA-n0nce got 2\n");
        host.say(fetch_accepted());
        host.hear(host.started());
        left = {"agent-" + sha256(kAgent)};
      } else if (by == "its own end") {
        CHECK_FALSE(host.shows(kToken));
        host.close_input();
      } else {
        host.send_signal(SIGTERM);
      }
      host.await_end();
      CHECK(host.files() == left);
    }
  }
}

TEST_CASE("the launcher ends an attempt at a source that cannot be reached") {
  const DeadPort dead;
  const std::string by = GENERATE("sending", "its own end");
  for (const auto& shell : system_shells()) {
    for (const std::string& tool : tools_with(shell)) {
      INFO(shell[0] << ", " << tool << ", by " << by);
      HostShell host(shell, {tool});
      host.ask();
      host.offer(1, dead.port());
      if (tool != "bash") host.hear("HORA-n0nce open 1\n");
      const auto began = Clock::now();
      std::vector<std::string> left;
      if (by == "sending") {
        host.say(transfer_header(false, kAgent.size()));
        std::thread sending([&host] { host.say(kAgent); });
        host.hear(host.started());
        sending.join();
        left = {"agent-" + sha256(kAgent)};
      } else {
        host.close_input();
      }
      host.await_end();
      CHECK(host.files() == left);
      CHECK(Clock::now() - began < 20s);  // a connection takes minutes to fail
    }
  }
}

TEST_CASE("a host whose folder another one has filled meanwhile fetches nothing") {
  HostShell host(kSh, {"bash"});
  host.ask();
  std::ofstream(host.agent() + ".new") << kAgent;
  fs::permissions(host.agent() + ".new", fs::perms::owner_all);
  fs::rename(host.agent() + ".new", host.agent());
  host.offer(1, 9);  // no server there
  CHECK(host.hear("HORA-n0nce got 1\n").find("open") == std::string::npos);
  host.say(fetch_accepted());
  host.hear(host.started());
  host.await_end();
  CHECK(host.files() == std::vector<std::string>{"agent-" + sha256(kAgent)});
}

TEST_CASE("a forced start fetches, whatever is there") {
  const Source source([](const Source&, int fd) { Source::send(fd, kAgent); });
  HostShell host(kSh, {"bash"}, true, /*force=*/true);
  host.ask();
  std::ofstream(host.agent()) << "#!/bin/sh\necho broken\n";
  fs::permissions(host.agent(), fs::perms::owner_all);
  host.offer(1, source.port());
  host.hear("HORA-n0nce got 1\n");
  host.say(fetch_accepted());
  host.hear(host.started());
  host.await_end();
}

TEST_CASE("of commands that break off nothing runs") {
  for (const auto& shell : system_shells()) {
    INFO(shell[0]);
    HostShell host(shell, {"bash"});
    host.hear(" " + host.cache() + "\n");
    host.say(fetch_script().substr(0, 700));
    host.close_input();
    host.await_end();
    CHECK(host.files().empty());
  }
}

TEST_CASE("what a host says of an attempt") {
  const auto read = [](std::string_view line) { return read_fetch_news(line); };
  CHECK(read("open 3")->kind == FetchNews::Kind::kOpen);
  CHECK(read("open 3")->number == 3);
  CHECK(read("got 12")->kind == FetchNews::Kind::kGot);
  CHECK(read("miss 2 hash")->kind == FetchNews::Kind::kMissed);
  CHECK(read("miss 2 hash")->reason == "what came has another SHA-256");
  CHECK(read("miss 0 tools")->number == 0);
  CHECK(read("miss 2 of another version")->reason == "it could not fetch it");
  for (const char* other : {"", "got", "got ", "got x", "got -1", "got 1 2", "open 99999999999",
                            "miss 2", "miss", "need gz x /d", "fail"}) {
    INFO(other);
    CHECK_FALSE(read(other));
  }
}

}  // namespace hora::launcher
