// SPDX-License-Identifier: Apache-2.0
// What ranks of one host share, as index 0 makes it; the others are the test's.
#include "collectives/memory/segment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::collectives;

namespace {

// Restores what the process had.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  mode_t before_;
};

}  // namespace

TEST_CASE("memory that has a name for a moment is its user's alone") {
  const Umask nothing_is_taken_away(0);
  std::string path;
  struct stat seen {};
  int offers = 0;
  // Rank 1 cannot reach what has no name, and then looks at what has one.
  const Allgather allgather = [&](const std::string& own) -> Result<std::vector<std::string>> {
    std::string other;
    if (const auto at = own.find("/dev/shm/hora-"); at != std::string::npos) {
      path = own.c_str() + at;
      REQUIRE(::lstat(path.c_str(), &seen) == 0);
    } else if (own.empty() && path.empty()) {
      other = "no way to it";
    } else if (!own.empty()) {
      ++offers;
    }
    return std::vector<std::string>{own, other};
  };
  const std::vector<std::int32_t> ranks{0, 1};
  const auto segment = Segment::open(ranks, 0, 4096, allgather);
  REQUIRE(segment);
  CHECK(offers == 1);
  REQUIRE(!path.empty());
  CHECK((seen.st_mode & 07777) == 0600);
  CHECK(S_ISREG(seen.st_mode));
  CHECK(seen.st_uid == ::geteuid());
  CHECK(::lstat(path.c_str(), &seen) != 0);  // the name is gone
}
