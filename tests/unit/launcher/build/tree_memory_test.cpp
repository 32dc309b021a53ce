// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/tree_memory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "launcher/build/user_tree.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

using namespace hora::launcher;

namespace fs = std::filesystem;

namespace {

// A folder with one file that was written long ago, and a place for the memory.
struct Scene {
  hora::test::TemporaryDirectory root;
  const std::string path = root.path();
  std::string file = path + "/tree/file";

  Scene() { fs::create_directory(path + "/tree"); }

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
  Scene scene;
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
  Scene scene;
  scene.write("one");
  const std::string first = scene.hash();
  CHECK(!scene.knows("file"));
}

TEST_CASE("a tree's memory forgets files that are gone, and all of them on demand") {
  Scene scene;
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
