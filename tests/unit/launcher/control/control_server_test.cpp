// SPDX-License-Identifier: Apache-2.0
// A server and its clients, in one process and several threads.
#include "launcher/control/control_server.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "launcher/control/control_client.h"
#include "launcher/control/control_folder.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/hora-control-test.XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    parent = name;
    path = parent + "/hora";
  }
  ~Folder() {
    ::rmdir(path.c_str());
    ::rmdir(parent.c_str());
  }
  std::string parent;
  std::string path;
};

// Runs while it lives.
struct Served {
  explicit Served(const std::string& folder) {
    auto opened =
        ControlServer::open(*loop, {"/proc/nowhere/hora", folder},
                            {[] {
                               JobSummary job;
                               job.job = ::getpid();
                               job.state = "running";
                               return job;
                             },
                             [this] { ++cancelled; }, [this](bool wanted) { watched = wanted; }});
    REQUIRE(opened);
    server = std::move(*opened);
    thread = std::thread([this] { (void)loop->run(); });
  }
  ~Served() {
    loop->post([this] {
      server.reset();
      loop->stop();
    });
    thread.join();
  }
  std::unique_ptr<os::EventLoop> loop = std::move(*os::EventLoop::create());
  std::unique_ptr<ControlServer> server;
  std::atomic<int> cancelled{0};
  std::atomic<bool> watched{false};
  std::thread thread;
};

void wait_until(const std::function<bool()>& holds) {
  const auto deadline = Clock::now() + 10s;
  while (!holds()) {
    REQUIRE(Clock::now() < deadline);
    std::this_thread::sleep_for(1ms);
  }
}

os::Fd connect_raw(const std::string& folder) {
  os::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder + "/" + std::to_string(::getpid())).copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

// What the server answers until it closes the connection.
std::string read_all(int fd) {
  std::string all;
  char bytes[4096];
  for (pollfd ready{fd, POLLIN, 0}; ::poll(&ready, 1, 10'000) == 1;) {
    const ssize_t got = ::read(fd, bytes, sizeof bytes);
    if (got <= 0) return all;
    all.append(bytes, static_cast<std::size_t>(got));
  }
  FAIL("the server keeps the connection");
  return all;
}

}  // namespace

TEST_CASE("A launcher is found, asked and cancelled; its socket goes with it") {
  Folder folder;
  {
    Served served(folder.path);
    struct stat info {};
    REQUIRE(::stat(folder.path.c_str(), &info) == 0);
    CHECK((info.st_mode & 077) == 0);
    const auto jobs = running_jobs({folder.path});
    REQUIRE(jobs.size() == 1);
    CHECK(jobs[0].job == ::getpid());
    CHECK(jobs[0].state == "running");

    auto connection =
        ControlConnection::open({folder.path}, ::getpid(), {ControlRequest::Kind::kCancel});
    REQUIRE(connection);
    CHECK(connection->read_line(10s));
    wait_until([&] { return served.cancelled == 1; });
    CHECK(connection->read_line(10ms).error().code == ErrorCode::kTimedOut);
  }
  CHECK(::access(folder.path.c_str(), F_OK) != 0);
  CHECK(running_jobs({folder.path}).empty());
}

TEST_CASE("Clients that are attached get what is announced, in whole lines") {
  Folder folder;
  Served served(folder.path);
  auto attached =
      ControlConnection::open({folder.path}, ::getpid(), {ControlRequest::Kind::kAttach});
  REQUIRE(attached);
  REQUIRE(attached->read_line(10s));
  CHECK(*attached->read_line(10s) == kRunningLine);  // as the summary says
  served.loop->post([&] { served.server->announce(exit_code_line(7)); });
  const auto line = attached->read_line(10s);
  REQUIRE(line);
  CHECK(parse_exit_code(*line) == 7);
}

TEST_CASE("Figures go to those who ask, as long as they ask") {
  Folder folder;
  Served served(folder.path);
  JobFigures figures;
  figures.ranks = 3;
  figures.worst.resize(3);
  {
    auto watcher = ControlConnection::open({folder.path}, ::getpid(), {ControlRequest::Kind::kTop});
    REQUIRE(watcher);
    REQUIRE(watcher->read_line(10s));
    wait_until([&] { return served.watched.load(); });
    served.loop->post([&] { served.server->publish(figures); });
    const auto line = watcher->read_line(10s);
    REQUIRE(line);
    const auto read = parse_figures(*line);
    REQUIRE(read);
    CHECK(read->worst.size() == 3);
  }
  wait_until([&] { return !served.watched; });
}

TEST_CASE("A watcher that does not read keeps nothing waiting") {
  Folder folder;
  Served served(folder.path);
  JobFigures figures;
  figures.worst.resize(4000);
  for (RankFigures& rank : figures.worst) rank.host = std::string(200, 'x');
  auto silent = ControlConnection::open({folder.path}, ::getpid(), {ControlRequest::Kind::kTop});
  REQUIRE(silent);
  wait_until([&] { return served.watched.load(); });
  std::atomic<int> published{0};
  for (int i = 0; i < 20; ++i) {
    served.loop->post([&] {
      served.server->publish(figures);
      ++published;
    });
  }
  wait_until([&] { return published == 20; });
  CHECK(running_jobs({folder.path}).size() == 1);
  // It gets whole lines all the same, and not those that came while it did not read.
  REQUIRE(silent->read_line(10s));
  const auto line = silent->read_line(10s);
  REQUIRE(line);
  const auto read = parse_figures(*line);
  REQUIRE(read);
  CHECK(read->worst.size() == 4000);
  CHECK_FALSE(silent->read_line(200ms));
}

TEST_CASE("Malformed requests cost their connection alone") {
  Folder folder;
  Served served(folder.path);
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const os::Fd socket = connect_raw(folder.path);
    std::string bytes(1 + random() % (3 * kLongestControlRequest), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    // Some are a request, with something before or behind it.
    if (i % 3 == 0) bytes = "job " + bytes + "\n";
    if (i % 3 == 1) bytes += "\ncancel\n";
    (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    (void)::shutdown(socket.get(), SHUT_WR);
    (void)read_all(socket.get());
  }
  CHECK(served.cancelled == 0);
  CHECK(running_jobs({folder.path}).size() == 1);
}

TEST_CASE("A request may come in pieces, and one that does not come ends") {
  Folder folder;
  Served served(folder.path);
  const os::Fd pieces = connect_raw(folder.path);
  for (const char c : std::string("job\n")) REQUIRE(::write(pieces.get(), &c, 1) == 1);
  CHECK(parse_job_summary(read_all(pieces.get())));
  const os::Fd silent = connect_raw(folder.path);
  CHECK(read_all(silent.get()).empty());
}

TEST_CASE("The socket of a killed launcher is removed by the next who looks") {
  Folder folder;
  REQUIRE(::mkdir(folder.path.c_str(), 0700) == 0);
  const std::string name = folder.path + "/999999999";
  {
    const os::Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(socket.get(), 1) == 0);
  }
  CHECK(running_jobs({folder.path}).empty());
  CHECK(::access(folder.path.c_str(), F_OK) != 0);
}

TEST_CASE("A folder that others may enter is not used, and no file but sockets is removed") {
  Folder folder;
  REQUIRE(::mkdir(folder.path.c_str(), 0700) == 0);
  const std::string other = folder.path + "/notes";
  REQUIRE(os::Fd(::open(other.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)).valid());
  CHECK(running_jobs({folder.path}).empty());
  CHECK(::access(other.c_str(), F_OK) == 0);
  ::unlink(other.c_str());
  ::chmod(folder.path.c_str(), 0755);
  auto loop = std::move(*os::EventLoop::create());
  CHECK_FALSE(ControlServer::open(*loop, {folder.path}, {}));
  CHECK_FALSE(ControlConnection::open({folder.path}, 1, {}));
}

TEST_CASE("The folder is the user's runtime directory, or one in /tmp") {
  const std::string own = "/tmp/hora-" + std::to_string(::geteuid());
  CHECK(control_folders("/run/user/7") == std::vector<std::string>{"/run/user/7/hora", own});
  CHECK(control_folders("") == std::vector<std::string>{own});
  CHECK(control_folders("relative") == std::vector<std::string>{own});
  CHECK(job_of_name("17") == 17);
  for (const char* name : {"", "x", "0", "-1", "017", "17x", "99999999999", "."}) {
    CHECK(job_of_name(name) == 0);
  }
}
