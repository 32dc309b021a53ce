// SPDX-License-Identifier: Apache-2.0
#include "launcher/libraries/loader_cache.h"

#include <cstdint>
#include <cstring>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

// As ldconfig writes it.
std::string cache_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string head = "glibc-ld.so.cache1.1";
  std::string strings, table;
  const auto number = [](std::uint32_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const std::size_t strings_at = 48 + 24 * entries.size();
  for (const auto& [soname, file] : entries) {
    table += number(0x0303) + number(static_cast<std::uint32_t>(strings_at + strings.size()));
    strings += soname + '\0';
    table += number(static_cast<std::uint32_t>(strings_at + strings.size()));
    strings += file + '\0';
    table += std::string(12, '\0');
  }
  head += number(static_cast<std::uint32_t>(entries.size())) +
          number(static_cast<std::uint32_t>(strings.size()));
  head.resize(48, '\0');
  return head + table + strings;
}

TEST_CASE("loader cache: files by name, in its order") {
  const std::string bytes =
      cache_of({{"liba.so.1", "/new/liba.so.1"}, {"liba.so.1", "/liba.so.1"}, {"libb.so", "/b"}});
  const LoaderCache cache(bytes);
  using Files = std::vector<std::string>;
  CHECK(cache.files_of("liba.so.1") == Files{"/new/liba.so.1", "/liba.so.1"});
  CHECK(cache.files_of("libb.so") == Files{"/b"});
  CHECK(cache.files_of("liba.so").empty());  // a part of a name is another name
  CHECK(cache.files_of("").empty());
  CHECK(LoaderCache("the old list" + bytes).files_of("libb.so") == Files{"/b"});
}

TEST_CASE("loader cache: what is damaged is left out") {
  const std::string bytes = cache_of({{"liba.so.1", "/liba.so.1"}, {"libb.so", "/b"}});
  CHECK(LoaderCache("").files_of("liba.so.1").empty());
  CHECK(LoaderCache("ld.so-1.7.0").files_of("liba.so.1").empty());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const LoaderCache cut(bytes.substr(0, size));  // the last name has no end
    CHECK(cut.files_of("liba.so.1").size() + cut.files_of("libb.so").size() < 2);
  }
  CHECK(LoaderCache(cache_of({{"liba.so.1", "relative"}})).files_of("liba.so.1").empty());
}

}  // namespace
}  // namespace hora::launcher
