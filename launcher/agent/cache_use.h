// SPDX-License-Identifier: Apache-2.0
// Who uses what of a cache: each agent marks the program that it is and the bundle that its ranks
// run from, as long as its job lives. Several hosts may see the marks, by a home that they share.
// Calls take as long as the file system does. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/agent/cache_directory.h"

namespace hora::launcher {

// In place of a bundle's hash: the agent's rank cleans the cache.
inline constexpr std::string_view kCleaner = "cleaner---------";

// The mark of one agent in one directory; the destructor removes it.
class UseMark {
 public:
  // `agent` and `bundle` are hashes (kCleaner aside); empty: none. `announce` is told the path of
  // the mark before it exists, and an empty one once it is gone: whoever outlives us can remove it.
  static Result<UseMark> make(const CacheDirectory& directory, std::string_view agent,
                              std::string_view bundle,
                              std::function<Status(const std::string&)> announce);
  UseMark(UseMark&& other) noexcept;
  UseMark& operator=(UseMark&&) = delete;
  ~UseMark();

  // To be called each hour, so that hosts that do not see its lock take it for alive.
  void renew() const;

 private:
  UseMark(std::string path, os::Fd lock, std::function<Status(const std::string&)> announce)
      : path_(std::move(path)), lock_(std::move(lock)), announce_(std::move(announce)) {}

  std::string path_;  // empty: moved from
  os::Fd lock_;
  std::function<Status(const std::string&)> announce_;
};

struct Use {
  std::string agent, bundle, host;
  std::optional<long> age_s;  // since it was renewed; nothing: a lock proves it
};

// Who uses an entry; nothing: nobody. One that a message has to name comes before a cleaner.
Result<std::optional<Use>> use_of(const CacheDirectory& directory, const std::string& entry);

}  // namespace hora::launcher
