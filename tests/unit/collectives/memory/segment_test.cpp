// SPDX-License-Identifier: Apache-2.0
#include "collectives/memory/segment.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/support/catch.h"

using hora::collectives::Share;
using hora::collectives::share_of;

TEST_CASE("share: all elements, each once, in whole cache lines") {
  for (const int size : {1, 2, 3, 8, 64}) {
    for (const std::int64_t width : {1, 2, 4, 8, 16}) {
      for (const std::int64_t count : {0, 1, 15, 16, 17, 1000, 4097}) {
        CAPTURE(size, width, count);
        std::int64_t at = 5;
        for (int rank = 0; rank < size; ++rank) {
          const Share its = share_of(rank, size, 5, count, width);
          CHECK(its.begin == at);
          CHECK(its.end >= its.begin);
          if (its.end < 5 + count) CHECK((its.end - 5) * width % 64 == 0);
          at = its.end;
        }
        CHECK(at == 5 + count);
      }
    }
  }
}

TEST_CASE("share: of much, no rank has more than a cache line more than its part") {
  const Share first = share_of(0, 3, 0, 1000, 4);
  CHECK(first.end - first.begin == 336);
  const Share last = share_of(2, 3, 0, 1000, 4);
  CHECK(last.end - last.begin == 328);
}

// What ranks of one host share, as index 0 makes it; the others are the test's.

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
