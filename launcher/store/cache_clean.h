// SPDX-License-Identifier: Apache-2.0
// Which agents use what of a cache, and the removal of what is not in use or beyond limits.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/cache_limits.h"
#include "launcher/store/directories.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

// Which process uses what of a cache: each agent marks its own program and the bundle that its
// ranks run from, as long as its job lives. Several hosts may see the marks through a shared home.
// Calls take as long as the file system does. One thread at a time.

// In place of a bundle's hash: the agent's rank cleans the cache.
inline constexpr std::string_view kCleaner = "cleaner---------";

// The mark of one agent in one directory; the destructor removes it.
class UseMark {
 public:
  // `agent` and `bundle` are hashes (kCleaner aside); empty: none. `announce` gets the path of the
  // mark before it exists, and an empty one once it is gone, so that the shim can remove it if we
  // are killed.
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

// The user of an entry; nothing: unused. A user that a message has to name takes precedence over a
// cleaner.
Result<std::optional<Use>> use_of(const CacheDirectory& directory, const std::string& entry);

// Removes from a cache what no job needs any more: all entries that are not in use, or those beyond
// limits. Any number of hosts that share the directory may do so at once, while jobs start. Calls
// take as long as the file system does. One thread at a time.
struct CleanRequest {
  CacheLimits limits;    // without any, all goes that is not in use
  bool dry_run = false;  // reports what it would remove, and changes nothing
  // At the end of a job, which a thousand hosts of one home may reach at once: looks at no mark
  // unless an entry has to go, leaves debris to the next bundle, and an empty directory to the job
  // that may have just made it.
  bool in_passing = false;
  // Begins no removal after it; the next cleaning does the rest.
  std::optional<Clock::time_point> deadline;
};

// Returns one line for each entry that had to stay although it is beyond the limits, except for
// agents that clean as well on hosts that share the directory: removing their program could end
// them, and they are not worth a message. Then how much was freed, or in a dry run what would be
// removed. Removes the directory when it is empty. A missing directory is clean.
Result<std::vector<std::string>> clean_cache(const std::string& path, const CleanRequest& request);

// The entries, oldest use first, a line each with size, last use and path; and what they take
// together.
Result<std::vector<std::string>> list_cache(const std::string& path);

// The entries for programs: a JSON object each with path, bytes, unused_s, and in_use_on where a
// host uses it. `head` is its beginning, as {"host":"a".
Result<std::vector<std::string>> list_cache_as_json(const std::string& path,
                                                    const std::string& head);

// Records for the next cleaner that this job has just used them. Empty names: nothing.
void note_use(const CacheDirectory& directory, const std::string& agent_sha256,
              const std::string& bundle);

}  // namespace hora::launcher
