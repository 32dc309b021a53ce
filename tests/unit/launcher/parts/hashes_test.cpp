// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/hashes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "launcher/parts/user_tree.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace hora::launcher {
namespace {

namespace fs = std::filesystem;

class Scene {
 public:
  std::string memory() const { return path_ / "cache" / "hora-launcher"; }
  std::string memory_file() const { return memory() + "/hashes"; }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }

 private:
  test::TemporaryDirectory root_;
  const fs::path path_ = root_.path();
};

// This program: it is older than any tick of a clock.
std::string own_program() { return fs::read_symlink("/proc/self/exe"); }

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("known hashes: a file is read once") {
  const Scene scene;
  KnownHashes first(scene.memory());
  const auto read = first.of(own_program());
  REQUIRE(read);
  CHECK(read->sha256 == sha256_hex(text_of(own_program())));
  CHECK(read->size_bytes == fs::file_size(own_program()));
  CHECK(first.read_bytes() == read->size_bytes);
  first.save();
  struct stat info {};
  REQUIRE(::stat(scene.memory().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  REQUIRE(::stat(scene.memory_file().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);

  KnownHashes second(scene.memory());
  const auto known = second.of(own_program());
  REQUIRE(known);
  CHECK(known->sha256 == read->sha256);
  CHECK(known->size_bytes == read->size_bytes);
  CHECK(second.read_bytes() == 0);

  KnownHashes::forget(scene.memory());
  KnownHashes third(scene.memory());
  CHECK(third.of(own_program()));
  CHECK(third.read_bytes() == read->size_bytes);
}

TEST_CASE("known hashes: another file of the name is another file") {
  const Scene scene;
  KnownHashes first(scene.memory());
  const auto read = first.of(own_program());
  first.save();
  const std::string good = text_of(scene.memory_file());
  // The numbers are device, inode, size, modified, changed.
  for (int field = 1; field <= 5; ++field) {
    std::istringstream words(good.substr(good.find('\n') + 1));
    std::string word;
    std::string line;
    for (int i = 0; words >> word; ++i) {
      line += (i == 0 ? "" : " ") + (i == field ? word + "1" : word);
    }
    std::ofstream(scene.memory_file()) << "hora-hashes-1\n" << line << "\n";
    KnownHashes changed(scene.memory());
    const auto again = changed.of(own_program());
    REQUIRE(again);
    CHECK(again->sha256 == read->sha256);
    CHECK(changed.read_bytes() == read->size_bytes);
  }
}

TEST_CASE("known hashes: what was written just now is not remembered") {
  const Scene scene;
  // A time that lies ahead: no tick of the clock has passed since.
  const std::string path = scene.file("new", "one");
  const timespec times[2] = {{::time(nullptr) + 3600, 0}, {::time(nullptr) + 3600, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  KnownHashes first(scene.memory());
  CHECK(first.of(path)->sha256 == sha256_hex("one"));
  first.save();
  CHECK_FALSE(fs::exists(scene.memory_file()));
}

TEST_CASE("known hashes: only a folder of the user's own is believed") {
  const Scene scene;
  KnownHashes first(scene.memory());
  const auto size = first.of(own_program())->size_bytes;
  first.save();
  SECTION("others can write there") { fs::permissions(scene.memory(), fs::perms(0777)); }
  SECTION("others can write to the file") { fs::permissions(scene.memory_file(), fs::perms(0666)); }
  SECTION("it is a link") {
    fs::rename(scene.memory(), scene.memory() + "-elsewhere");
    fs::create_symlink(scene.memory() + "-elsewhere", scene.memory());
  }
  SECTION("the file is a link") {
    fs::rename(scene.memory_file(), scene.memory_file() + "-elsewhere");
    fs::create_symlink(scene.memory_file() + "-elsewhere", scene.memory_file());
  }
  SECTION("the file is of another version") {
    const std::string text = text_of(scene.memory_file());
    std::ofstream(scene.memory_file()) << "hora-hashes-2" << text.substr(text.find('\n'));
  }
  SECTION("the file is damaged") {
    std::ofstream(scene.memory_file()) << "hora-hashes-1\n0 1 2\n\nxyz 1 1 1 1 1 /a b\n\xff\n";
  }
  KnownHashes second(scene.memory());
  CHECK(second.of(own_program())->size_bytes == size);
  CHECK(second.read_bytes() == size);
  second.save();  // whether it can or not
}

TEST_CASE("known hashes: launches that save at the same time lose nothing that is whole") {
  const Scene scene;
  KnownHashes first(scene.memory());
  KnownHashes second(scene.memory());
  REQUIRE(first.of(own_program()));
  REQUIRE(second.of("/proc/self/exe"));  // the same file by another name
  first.save();
  second.save();
  KnownHashes third(scene.memory());
  CHECK(third.of(own_program()));
  CHECK(third.of("/proc/self/exe"));
  CHECK(third.read_bytes() == 0);
}

TEST_CASE("known hashes: without a folder nothing is remembered") {
  KnownHashes hashes("");
  CHECK(hashes.of(own_program()));
  hashes.save();
  CHECK_FALSE(hashes.of("/nowhere"));
  CHECK(hashes.of("/tmp").error().message == "/tmp is not a file");
}

TEST_CASE("known hashes: the folder follows the user's cache") {
  CHECK(launcher_memory_folder({}).empty());
  CHECK(launcher_memory_folder({{"HOME", "/home/u"}}) == "/home/u/.cache/hora-launcher");
  CHECK(launcher_memory_folder({{"HOME", "/home/u"}, {"XDG_CACHE_HOME", "/c"}}) ==
        "/c/hora-launcher");
  CHECK(launcher_memory_folder({{"XDG_CACHE_HOME", "c"}}).empty());
}

}  // namespace
}  // namespace hora::launcher

using namespace hora::launcher;

namespace fs = std::filesystem;

namespace {

// A folder with one file that was written long ago, and a place for the memory.
struct TreeScene {
  hora::test::TemporaryDirectory root;
  const std::string path = root.path();
  std::string file = path + "/tree/file";

  TreeScene() { fs::create_directory(path + "/tree"); }

  // Other bytes in the same file, whose time of the last change the kernel sets.
  void write(const std::string& text) const { std::ofstream(file) << text; }
  std::string memory() const { return path + "/cache/hora-launcher"; }
  std::string hash() const {
    TreeMemory known(memory(), "test");
    return read_user_tree({{path + "/tree", ""}}, 1'000'000, known).value().parts.front().hash;
  }
  bool knows(const std::string& name) const {
    PartFile known;
    known.file.path = name;
    struct stat info {};
    REQUIRE(::stat(file.c_str(), &info) == 0);
    known.stamp = stamp_of(info);
    return TreeMemory(memory(), "test").recall(known);
  }
};

// Beyond the tick of any clock, so that what is written is settled.
void let_it_settle(const std::string& path) {
  struct stat info {};
  do {
    REQUIRE(::stat(path.c_str(), &info) == 0);
    ::usleep(10'000);
  } while (!is_settled(stamp_of(info), file_clock_ns()));
}

}  // namespace

TEST_CASE("a tree's memory knows a file until the kernel says that it has changed") {
  TreeScene scene;
  scene.write("one");
  let_it_settle(scene.file);
  const std::string first = scene.hash();
  CHECK(scene.knows("file"));
  CHECK(scene.hash() == first);
  scene.write("two");
  CHECK(!scene.knows("file"));
  CHECK(scene.hash() != first);
}

TEST_CASE("a file that was written just now is read again") {
  TreeScene scene;
  scene.write("one");
  const std::string first = scene.hash();
  CHECK(!scene.knows("file"));
}

TEST_CASE("a tree's memory forgets files that are gone, and all of them on demand") {
  TreeScene scene;
  scene.write("one");
  let_it_settle(scene.file);
  (void)scene.hash();
  REQUIRE(scene.knows("file"));
  const std::string other = scene.path + "/tree/other";
  std::ofstream(other) << "new";
  fs::rename(scene.file, scene.path + "/tree/third");
  scene.file = scene.path + "/tree/third";
  let_it_settle(scene.file);
  let_it_settle(other);
  (void)scene.hash();
  CHECK(scene.knows("third"));
  CHECK(!scene.knows("file"));
  TreeMemory(scene.memory(), "test").forget();
  CHECK(!scene.knows("third"));
}

TEST_CASE("without a folder nothing is remembered") {
  TreeMemory none("", "test");
  PartFile file;
  file.sha256 = std::string(64, 'a');
  none.learn(file);
  none.save({file});
  CHECK(!TreeMemory("", "test").recall(file));
}
