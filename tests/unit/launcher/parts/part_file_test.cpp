// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/part_file.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

constexpr std::uint64_t kMiB = 1u << 20;

PartFile file(const std::string& path, std::uint64_t bytes) {
  PartFile made;
  made.file.path = path;
  made.file.size_bytes = bytes;
  return made;
}

// Each part as the list of its paths.
std::set<std::string> parts_of(std::vector<PartFile> files) {
  std::set<std::string> parts;
  for (const auto& part : cut_tree(std::move(files))) {
    std::string paths;
    for (const PartFile& each : part) paths += each.file.path + "\n";
    parts.insert(paths);
  }
  return parts;
}

std::size_t count_new(const std::set<std::string>& before, const std::set<std::string>& after) {
  return static_cast<std::size_t>(
      std::count_if(after.begin(), after.end(),
                    [&before](const std::string& part) { return before.count(part) == 0; }));
}

// An environment of Python: `packages` folders of 40 files.
std::vector<PartFile> environment(int packages) {
  std::vector<PartFile> files;
  for (int i = 0; i < packages; ++i) {
    for (int k = 0; k < 40; ++k) {
      files.push_back(file("lib/python3.11/site-packages/p" + std::to_string(1000 + i) + "/m" +
                               std::to_string(k) + ".py",
                           10'000));
    }
  }
  return files;
}

}  // namespace

TEST_CASE("tree cut: every file is in one part, and none is too large for several") {
  std::vector<PartFile> files = environment(100);
  files.push_back(file("model.bin", 300 * kMiB));
  files.push_back(file("z", 3 * kMiB));
  files.push_back(file("y", 3 * kMiB));
  std::size_t count = 0;
  for (const auto& part : cut_tree(files)) {
    std::uint64_t bytes = 0;
    for (const PartFile& each : part) bytes += each.file.size_bytes;
    CHECK((bytes <= 4 * kMiB || part.size() == 1));
    count += part.size();
  }
  CHECK(count == files.size());
  CHECK(cut_tree({}).empty());
}

TEST_CASE("tree cut: a package that is added or removed changes its own parts alone") {
  const auto before = parts_of(environment(200));
  CHECK(before.size() < 600);
  auto files = environment(200);
  files.push_back(file("lib/python3.11/site-packages/p1100a/new.py", 5));
  CHECK(count_new(before, parts_of(files)) == 1);
  files = environment(200);
  files.erase(files.begin() + 40 * 100, files.begin() + 40 * 101);
  CHECK(count_new(before, parts_of(files)) == 0);
}

TEST_CASE("tree cut: in one folder of many files, a file that is added changes what is near it") {
  std::vector<PartFile> files;
  for (int i = 0; i < 20'000; ++i) files.push_back(file("d/" + std::to_string(100'000 + i), 900));
  const auto before = parts_of(files);
  CHECK(before.size() > 150);
  CHECK(before.size() < 700);
  files.push_back(file("d/110000a", 900));
  CHECK(count_new(before, parts_of(files)) <= 2);
}

TEST_CASE("tree cut: a tree of very many folders has fewer parts than folders") {
  std::vector<PartFile> files;
  for (int i = 0; i < 50'000; ++i) files.push_back(file("a/b/" + std::to_string(i) + "/x", 10));
  CHECK(cut_tree(files).size() < 3'000);
}
