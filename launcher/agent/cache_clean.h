// SPDX-License-Identifier: Apache-2.0
// Takes out of a cache what nobody needs any more: all that is not in use, or what is beyond
// limits. Any number of hosts that share the directory may do so at once, while jobs start. Calls
// take as long as the file system does. One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/cache_directory.h"
#include "launcher/plan/cache_limits.h"
#include "rendezvous/base/duration.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct CleanRequest {
  CacheLimits limits;    // without any, all goes that is not in use
  bool dry_run = false;  // tells what would go, and changes nothing
  // At the end of a job, which a thousand hosts of one home may reach at once: looks at no mark
  // unless an entry has to go, leaves debris to the next bundle, and an empty directory to the job
  // that may have just made it.
  bool in_passing = false;
  // Begins no removal after it; the rest is for whoever cleans next.
  std::optional<Clock::time_point> deadline;
};

// Answers what had to stay although it is beyond the limits, a line each; but for agents that clean
// as well, on hosts that share the directory: who takes a program away from another host may end it
// there, and that is not worth a word. Then how much is gone; of a dry run, what would go. Removes
// the directory when it is empty. One that is not there is clean.
Result<std::vector<std::string>> clean_cache(const std::string& path, const CleanRequest& request);

// The entries, oldest use first, a line each with size, last use and path; and what they take
// together.
Result<std::vector<std::string>> list_cache(const std::string& path);

// The entries for programs: a JSON object each with path, bytes, unused_s, and in_use_on where a
// host uses it. `head` is its beginning, as {"host":"a".
Result<std::vector<std::string>> list_cache_as_json(const std::string& path,
                                                    const std::string& head);

// Tells the next who cleans that this job has just used them. Empty names: nothing.
void note_use(const CacheDirectory& directory, const std::string& agent_sha256,
              const std::string& bundle);

}  // namespace hora::launcher
