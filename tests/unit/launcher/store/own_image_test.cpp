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

TEST_CASE("a replaced file is verified again") {
  const Cache cache;
  cache.verify_until_noted();
  std::ofstream(cache.folder + "/other") << "THE AGENT";
  fs::rename(cache.folder + "/other", cache.path);
  CHECK(!cache.verify());
}

TEST_CASE("a note of another user, or a link, does not count") {
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
