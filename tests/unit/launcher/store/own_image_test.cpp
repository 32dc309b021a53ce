// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/own_image.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "launcher/store/file_unpacker.h"
#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

using namespace hora;
using namespace hora::launcher;
namespace fs = std::filesystem;

namespace {

// A folder with a program under its proper name.
struct Cache {
  Cache() {
    std::ofstream(folder + "/text") << "the agent";
    hash = *sha256_of_file(folder + "/text");
    path = folder + "/agent-" + hash;
    fs::rename(folder + "/text", path);
    fs::permissions(path, fs::perms::owner_all);
    note = folder + "/.verified-" + hash;
  }
  Result<std::string> verify() const { return verify_image(path, path); }
  // The note is taken once the file is a moment old.
  void verify_until_noted() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!fs::exists(note) && std::chrono::steady_clock::now() < deadline) REQUIRE(verify());
    REQUIRE(fs::exists(note));
  }
  test::TemporaryDirectory root;
  const std::string folder = root.path();
  std::string path, hash, note;
};

}  // namespace

TEST_CASE("a whole copy is found right, and noted") {
  const Cache cache;
  auto first = cache.verify();
  REQUIRE(first);
  CHECK(*first == cache.hash);
  cache.verify_until_noted();
  CHECK((fs::status(cache.note).permissions() & fs::perms::mask) ==
        (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(cache.verify());
}

TEST_CASE("the note is taken though another host's process of our number left one half done") {
  const Cache cache;
  std::ofstream(cache.note + "." + std::to_string(::getpid())) << "half";
  cache.verify_until_noted();
}

TEST_CASE("a byte that was changed behind the note is seen, and the copy removed") {
  const Cache cache;
  cache.verify_until_noted();
  struct stat before {};
  REQUIRE(::stat(cache.path.c_str(), &before) == 0);
  std::fstream(cache.path, std::ios::in | std::ios::out) << 'T';
  // Even if the clock is set back: that of the last change of the inode cannot be set.
  const timespec times[2] = {before.st_atim, before.st_mtim};
  REQUIRE(::utimensat(AT_FDCWD, cache.path.c_str(), times, 0) == 0);
  const auto found = cache.verify();
  REQUIRE(!found);
  CHECK(found.error().message.find("is damaged") != std::string::npos);
  CHECK(!fs::exists(cache.path));
}

TEST_CASE("another file in its place is looked at anew") {
  const Cache cache;
  cache.verify_until_noted();
  std::ofstream(cache.folder + "/other") << "THE AGENT";
  fs::rename(cache.folder + "/other", cache.path);
  CHECK(!cache.verify());
}

TEST_CASE("a note of somebody else, or a link, does not count") {
  const Cache cache;
  cache.verify_until_noted();
  std::string text;
  std::getline(std::ifstream(cache.note), text);
  SECTION("a link") {
    fs::rename(cache.note, cache.folder + "/elsewhere");
    fs::create_symlink(cache.folder + "/elsewhere", cache.note);
  }
  SECTION("another owner") {
    if (::geteuid() != 0) return;
    REQUIRE(::chown(cache.note.c_str(), 12345, 12345) == 0);
  }
  CHECK(cache.verify());  // it is read again, and is right
  CHECK(!fs::is_symlink(cache.note));
  struct stat info {};
  REQUIRE(::lstat(cache.note.c_str(), &info) == 0);
  CHECK(info.st_uid == ::geteuid());
}

TEST_CASE("a copy that others may write is not used") {
  const Cache cache;
  SECTION("by its mode") { fs::permissions(cache.path, fs::perms::all); }
  SECTION("by its owner") {
    if (::geteuid() != 0) return;
    REQUIRE(::chown(cache.path.c_str(), 12345, 12345) == 0);
  }
  CHECK(!cache.verify());
}

TEST_CASE("a program of another name is not a cached copy") {
  const Cache cache;
  for (const char* name : {"/hora-agent", "/agent-abc", "/agent"}) {
    const std::string path = cache.folder + name;
    fs::copy_file(cache.path, path);
    auto found = verify_image(path, path);
    REQUIRE(found);
    CHECK(found->empty());
  }
}

// Which clients get the agent's program, and what the others cost.

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
