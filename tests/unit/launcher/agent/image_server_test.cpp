// SPDX-License-Identifier: Apache-2.0
// Who gets the agent's program, and what strangers cost.
#include "launcher/agent/image_server.h"

#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

const std::string kToken = "0123456789abcdef0123456789abcdef";
const std::string kLine = "HORA-IMAGE-1 " + kToken + "\n";

struct Served {
  std::string path = fs::temp_directory_path() / ("hora-served-" + std::to_string(::getpid()));
  std::string program = std::string(3'000'000, 'p') + "end";  // more than sockets hold
  std::unique_ptr<os::EventLoop> loop = std::move(*os::EventLoop::create());
  std::unique_ptr<ImageServer> server;
  std::thread thread;

  Served() {
    std::ofstream(path) << program;
    server = std::move(ImageServer::create(*loop, kToken, path).value());
    thread = std::thread([this] { REQUIRE(loop->run()); });
  }
  ~Served() {
    loop->post([this] {
      server.reset();
      loop->stop();
    });
    thread.join();
    fs::remove(path);
  }
  os::Fd connect() const {
    return net::connect_tcp(
               {*parse_ip_address("127.0.0.1"), static_cast<std::uint16_t>(server->port())},
               Clock::now() + 20s)
        .value();
  }
};

// Until the end of the stream.
std::string read_all(const os::Fd& fd) {
  std::string all;
  std::string chunk(65536, '\0');
  for (;;) {
    const auto got = net::receive_some(fd.get(), chunk.data(), chunk.size(), Clock::now() + 20s);
    if (!got || *got == 0) return all;
    all.append(chunk, 0, *got);
  }
}

void send(const os::Fd& fd, const std::string& bytes) {
  (void)net::send_all(fd.get(), bytes, Clock::now() + 20s);
}

}  // namespace

TEST_CASE("who has the token gets the program, several at a time, and half-closed") {
  const Served served;
  std::vector<os::Fd> peers;
  for (int i = 0; i < 4; ++i) {
    peers.push_back(served.connect());
    send(peers.back(), kLine.substr(0, 20));
  }
  for (const os::Fd& peer : peers) {
    send(peer, kLine.substr(20));
    ::shutdown(peer.get(), SHUT_WR);
  }
  for (const os::Fd& peer : peers) CHECK(read_all(peer) == served.program);
}

TEST_CASE("who has another token gets nothing") {
  const Served served;
  std::string other = kLine;
  other[20] ^= 1;
  for (const std::string& line :
       {other, std::string(1'000'000, 'x'), "GET / HTTP/1.1\r\n" + kLine}) {
    const os::Fd peer = served.connect();
    send(peer, line);
    CHECK(read_all(peer).empty());
  }
}

TEST_CASE("strangers who say nothing are sent away, and keep nobody out") {
  const Served served;
  std::vector<os::Fd> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(served.connect());
  const os::Fd peer = served.connect();
  send(peer, kLine);
  CHECK(read_all(peer) == served.program);
  for (const os::Fd& stranger : strangers) CHECK(read_all(stranger).empty());
}

TEST_CASE("a peer that reads nothing costs the others one place") {
  const Served served;
  const os::Fd peer = served.connect();
  send(peer, kLine);
  std::vector<os::Fd> others;
  for (int i = 0; i < 16; ++i) {
    others.push_back(served.connect());
    send(others.back(), kLine);
  }
  std::size_t whole = 0;
  for (const os::Fd& other : others) whole += read_all(other) == served.program ? 1 : 0;
  CHECK(whole >= 15);
}

TEST_CASE("a token that no launcher sends is refused") {
  const auto loop = std::move(*os::EventLoop::create());
  CHECK_FALSE(ImageServer::create(*loop, ""));
  CHECK_FALSE(ImageServer::create(*loop, std::string(1'000, 'x')));
  CHECK_FALSE(ImageServer::create(*loop, kToken, "/nowhere"));
}
