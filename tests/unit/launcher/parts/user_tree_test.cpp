// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/user_tree.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

using namespace hora::launcher;
using hora::Result;

namespace fs = std::filesystem;

namespace {

Result<UserTree> read_tree(const std::vector<TreeRoot>& roots, std::uint64_t most) {
  TreeMemory none("", "");
  return read_user_tree(roots, most, none);
}

// A folder, alone in a temporary one.
struct Folder {
  hora::test::TemporaryDirectory root;
  const std::string path = root / "project";

  Folder() { fs::create_directory(path); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name) << text;
  }
  UserTree read(const std::string& prefix = "") const {
    return read_tree({{path, prefix}}, 1'000'000).value();
  }
  std::string fault(std::uint64_t most = 1'000'000) const {
    const auto tree = read_tree({{path, ""}}, most);
    REQUIRE(!tree);
    return tree.error().message;
  }
};

std::map<std::string, BundleFile> files_of(const UserTree& tree) {
  std::map<std::string, BundleFile> files;
  for (const TreePart& part : tree.parts) {
    for (const PartFile& each : part.files) files[each.file.path] = each.file;
  }
  return files;
}

std::string hashes_of(const UserTree& tree) {
  std::string text;
  for (const TreePart& part : tree.parts) text += part.hash + "\n";
  return text;
}

}  // namespace

TEST_CASE("user tree: files, links, modes and empty folders") {
  const Folder folder;
  folder.write("a/code.py", "code");
  folder.write("run.sh", "#!/bin/sh\n");
  ::chmod((folder.path + "/run.sh").c_str(), 0755);
  fs::create_directories(folder.path + "/logs/old");
  fs::create_symlink("a/code.py", folder.path + "/latest");
  folder.write(".git/HEAD", "no");
  folder.write("a/__pycache__/code.pyc", "no");
  const UserTree tree = folder.read("project");
  const auto files = files_of(tree);
  REQUIRE(files.size() == 4);
  CHECK(files.at("project/a/code.py").size_bytes == 4);
  CHECK(files.at("project/run.sh").mode == 0755);
  CHECK(files.at("project/latest").link_target == "a/code.py");
  CHECK(files.at("project/logs/old").mode == (S_IFDIR | 0755));
  CHECK(tree.left_out.empty());
  CHECK(tree.bytes == 14);
}

TEST_CASE("user tree: a part is called by what is in it") {
  const Folder folder;
  folder.write("a", "text");
  const std::string before = hashes_of(folder.read());
  CHECK(hashes_of(folder.read()) == before);
  folder.write("a", "texT");
  CHECK(hashes_of(folder.read()) != before);
  folder.write("a", "text");
  CHECK(hashes_of(folder.read()) == before);
  ::chmod((folder.path + "/a").c_str(), 0755);
  CHECK(hashes_of(folder.read()) != before);
  fs::remove(folder.path + "/a");
  fs::create_symlink("text", folder.path + "/a");
  const std::string link = hashes_of(folder.read());
  fs::remove(folder.path + "/a");
  fs::create_symlink("other", folder.path + "/a");
  CHECK(hashes_of(folder.read()) != link);
}

TEST_CASE("user tree: links that lead out of it") {
  const Folder folder;
  std::ofstream(folder.root / "outside") << "outside";
  fs::create_symlink("../outside", folder.path + "/file");
  fs::create_symlink(folder.root.path(), folder.path + "/folder");
  fs::create_symlink("nowhere/../../x", folder.path + "/dangling");
  fs::create_symlink("not-there-yet", folder.path + "/inside");
  REQUIRE(::mkfifo((folder.path + "/pipe").c_str(), 0600) == 0);
  const UserTree tree = folder.read();
  const auto files = files_of(tree);
  REQUIRE(files.size() == 2);
  CHECK(files.at("file").size_bytes == 7);
  CHECK(files.at("file").link_target.empty());
  CHECK(files.at("inside").link_target == "not-there-yet");
  CHECK(tree.left_out.size() == 3);
}

TEST_CASE("user tree: what cannot be sent is one error") {
  const Folder folder;
  folder.write("data/large", std::string(5'000, 'x'));
  folder.write("small", "x");
  CHECK(folder.fault(1'000).find("4.9K are more than") != std::string::npos);
  CHECK(folder.fault(1'000).find("data alone has 4.9K") != std::string::npos);
  folder.write("two\nlines", "x");
  CHECK(folder.fault().find("project/two\\x0alines' has a line break") != std::string::npos);
  const auto missing = read_tree({{folder.path + "/none", ""}}, 1);
  REQUIRE(!missing);
  CHECK(missing.error().message.find("none") != std::string::npos);
  const auto twice = read_tree({{folder.path + "/data", ""}, {folder.path + "/data", ""}}, 100'000);
  REQUIRE(!twice);
  CHECK(twice.error().message.find("would be one file") != std::string::npos);
}

TEST_CASE("user tree: a file that changes between reading and packing is not sent") {
  const Folder folder;
  folder.write("a", "text");
  const UserTree tree = folder.read();
  PackingState state;
  CHECK(tree_part_frames(tree.parts.front(), state).has_value());
  folder.write("a", "other text");
  const auto packed = tree_part_frames(tree.parts.front(), state);
  REQUIRE(!packed);
  CHECK(packed.error().message.find("has changed") != std::string::npos);
}

TEST_CASE("user tree: what has gone since its folder was read does not travel") {
  const Folder folder;
  folder.write("stays", "text");
  folder.write("gone/file", "text");
  folder.write("swap", "text");
  fs::create_symlink("stays", folder.path + "/link");
  const auto remove = [&](const std::string& inside) {
    if (inside != "stays") fs::remove_all(folder.path + "/" + inside);
    return false;
  };
  TreeMemory none("", "");
  auto tree = read_user_tree({{folder.path, "", remove}}, 1'000, none);
  REQUIRE(tree);
  CHECK(files_of(*tree).size() == 1);
  folder.write("later", "text");
  auto listing = list_tree({{folder.path, ""}}, 1'000);
  REQUIRE(listing);
  fs::remove(folder.path + "/later");
  tree = make_user_tree(std::move(*listing), none);
  REQUIRE(tree);
  CHECK(files_of(*tree).count("later") == 0);
  fs::remove(folder.path + "/stays");
  PackingState state;
  const auto packed = tree_part_frames(tree->parts.front(), state);
  REQUIRE(!packed);
  CHECK(packed.error().message.find("has changed") != std::string::npos);
}

// Gigabytes take minutes, before anything else could notice it.
TEST_CASE("user tree: a signal that asks for the end ends the reading") {
  const Folder folder;
  folder.write("a", "text");
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigset_t before;
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &term, &before) == 0);
  auto listing = list_tree({{folder.path, ""}}, 1'000);
  REQUIRE(::kill(::getpid(), SIGTERM) == 0);  // to the process, as from others: threads read, too
  const auto listed = list_tree({{folder.path, ""}}, 1'000);
  TreeMemory none("", "");
  const auto read = make_user_tree(std::move(*listing), none);
  int taken = 0;
  ::sigwait(&term, &taken);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  REQUIRE(!listed);
  CHECK(listed.error().code == hora::ErrorCode::kInterrupted);
  REQUIRE(!read);
  CHECK(read.error().code == hora::ErrorCode::kInterrupted);
}
