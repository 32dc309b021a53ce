// SPDX-License-Identifier: Apache-2.0
#include "launcher/machine/host_facts.h"

#include <dlfcn.h>

#include <filesystem>
#include <fstream>

#include <gnu/libc-version.h>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace hora::launcher {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";
constexpr const char* kMuslLoader = "/lib/ld-musl-x86_64.so.1";
#else
constexpr const char* kLoader = "/lib/ld-linux-aarch64.so.1";
constexpr const char* kMuslLoader = "/lib/ld-musl-aarch64.so.1";
#endif

void touch(const std::string& path) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << "no ELF file";
}

TEST_CASE("This host's C library is the one that this program has loaded") {
  CHECK(c_library() == std::string("glibc ") + gnu_get_libc_version());
}

TEST_CASE("A host without glibc is recognised") {
  const test::TemporaryDirectory root;
  CHECK(c_library(root.path()) == "none");
  touch(root.path() + kMuslLoader);
  CHECK(c_library(root.path()) == "musl");
}

TEST_CASE("A distribution that has glibc elsewhere is not judged") {
  const test::TemporaryDirectory root;
  fs::create_directories(root.path() + "/nix/store");
  CHECK(c_library(root.path()).empty());
}

TEST_CASE("A damaged libc.so.6 is not judged") {
  const test::TemporaryDirectory root;
  touch(root.path() + kLoader);
  CHECK(c_library(root.path()).empty());
  const std::string library = root.path() + fs::path(kLoader).parent_path().string() + "/libc.so.6";
  touch(library);
  CHECK(c_library(root.path()).empty());
  // The real one, cut at any length.
  Dl_info info{};
  REQUIRE(::dladdr(reinterpret_cast<void*>(&gnu_get_libc_version), &info) != 0);
  const auto size = fs::file_size(info.dli_fname);
  for (const std::uintmax_t length : {std::uintmax_t{64}, size / 2, size - 1}) {
    fs::copy_file(info.dli_fname, library, fs::copy_options::overwrite_existing);
    fs::resize_file(library, length);
    CHECK(c_library(root.path()).empty());
  }
  fs::copy_file(info.dli_fname, library, fs::copy_options::overwrite_existing);
  CHECK(c_library(root.path()) == c_library());
}

}  // namespace
}  // namespace hora::launcher
