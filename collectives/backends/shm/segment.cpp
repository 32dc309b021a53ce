#include "collectives/backends/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "rendezvous/os/fd.h"

namespace hora::collectives {

namespace {

enum class Kind : std::int32_t {
  kAnonymous,  // a memfd, reached by way of /proc: leaves nothing behind, and no mount limits it
  kNamed,      // a file in /dev/shm, for ranks that do not see each other's /proc entries
};

// How the others find what index 0 has made.
struct Offer {
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  std::uint64_t size = 0;
  std::uint64_t nonce = 0;
  char path[128] = {};
  ErrorText error;  // not empty: nothing was made
};

struct Outcome {
  ErrorText error;
};

os::Fd make_anonymous(std::size_t bytes, ErrorText& error) {
  os::Fd fd(memfd_create("hora", MFD_CLOEXEC));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    error.set("making shared memory: %s", std::strerror(errno));
    return os::Fd();
  }
  return fd;
}

os::Fd make_named(std::size_t bytes, char* path, std::size_t path_size, std::uint64_t nonce,
                  ErrorText& error) {
  std::snprintf(path, path_size, "/dev/shm/hora-%d-%016llx", static_cast<int>(getpid()),
                static_cast<unsigned long long>(nonce));
  os::Fd fd(::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    error.set("making %s: %s", path, std::strerror(errno));
    return fd;
  }
  // Takes the memory now: a later page that cannot be had would be a SIGBUS.
  const int failure = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (failure == 0) return fd;
  struct statvfs space {};
  statvfs("/dev/shm", &space);
  error.set(
      "/dev/shm has %llu MB free and %zu MB are needed (%s). Give the container more (docker run "
      "--shm-size=1g; Kubernetes: an emptyDir of medium Memory at /dev/shm), or set "
      "HORA_SHM_BYTES to less",
      static_cast<unsigned long long>(space.f_bavail) * space.f_frsize >> 20, bytes >> 20,
      std::strerror(failure));
  unlink(path);
  return os::Fd();
}

os::Fd open_offer(const Offer& offer, Kind kind, ErrorText& error) {
  char path[160];
  if (kind == Kind::kAnonymous) {
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", offer.pid, offer.fd);
  } else {
    std::snprintf(path, sizeof path, "%s", offer.path);
  }
  os::Fd fd(::open(path, O_RDWR | O_CLOEXEC));
  if (!fd.valid()) error.set("opening %s: %s", path, std::strerror(errno));
  return fd;
}

void* map(const os::Fd& fd, std::size_t bytes, ErrorText& error) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data != MAP_FAILED) return data;
  error.set("mapping shared memory: %s", std::strerror(errno));
  return nullptr;
}

// One way of sharing, tried by all ranks together. The first eight bytes hold the nonce meanwhile:
// ranks that only seem to share a host find another one there.
bool attempt(Kind kind, const GroupContext& group, std::size_t bytes, void** data,
             ErrorText& error) {
  Offer mine;
  os::Fd fd;
  if (group.index == 0) {
    mine.pid = static_cast<std::int32_t>(getpid());
    mine.size = bytes;
    if (getrandom(&mine.nonce, sizeof mine.nonce, 0) != sizeof mine.nonce) mine.nonce = 1;
    fd = kind == Kind::kAnonymous
             ? make_anonymous(bytes, mine.error)
             : make_named(bytes, mine.path, sizeof mine.path, mine.nonce, mine.error);
    mine.fd = fd.get();
    if (fd.valid()) *data = map(fd, bytes, mine.error);
    if (*data != nullptr) std::memcpy(*data, &mine.nonce, sizeof mine.nonce);
  }
  const void* const* received = nullptr;
  const std::size_t* lengths = nullptr;
  bool exchanged = group.services->exchange(&mine, sizeof mine, false, &received, &lengths, error);
  Outcome outcome;
  Offer offer;
  if (exchanged && lengths[0] == sizeof offer) {
    std::memcpy(&offer, received[0], sizeof offer);
    outcome.error = offer.error;
  } else {
    outcome.error.set("no offer of shared memory came");
  }
  if (outcome.error.text[0] == '\0' && group.index != 0) {
    fd = open_offer(offer, kind, outcome.error);
    if (fd.valid()) *data = map(fd, bytes, outcome.error);
    if (*data != nullptr && std::memcmp(*data, &offer.nonce, sizeof offer.nonce) != 0) {
      outcome.error.set("%s on this host is not the memory of rank %d", offer.path, group.ranks[0]);
    }
  }
  exchanged = exchanged &&
              group.services->exchange(&outcome, sizeof outcome, false, &received, &lengths, error);
  if (kind == Kind::kNamed && mine.path[0] != '\0') unlink(mine.path);
  if (!exchanged) return false;
  for (int i = 0; i < group.size; ++i) {
    Outcome theirs;
    if (lengths[i] != sizeof theirs) return error.set("a rank sent a malformed message");
    std::memcpy(&theirs, received[i], sizeof theirs);
    if (theirs.error.text[0] != '\0') {
      return error.set("rank %d: %.600s", group.ranks[i], theirs.error.text);
    }
  }
  // Everybody has looked at the nonce. Nobody uses the memory before it is gone: one more round.
  if (group.index == 0) std::memset(*data, 0, sizeof mine.nonce);
  return group.services->exchange("", 0, false, &received, &lengths, error);
}

}  // namespace

Segment::Segment(Segment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, size_);
}

bool Segment::open(const GroupContext& group, std::size_t bytes, ErrorText& error) {
  for (Kind kind : {Kind::kAnonymous, Kind::kNamed}) {
    void* data = nullptr;
    error = ErrorText();
    const bool shared = attempt(kind, group, bytes, &data, error);
    if (shared) {
      data_ = data;
      size_ = bytes;
      return true;
    }
    if (data != nullptr) munmap(data, bytes);
  }
  return false;
}

}  // namespace hora::collectives
