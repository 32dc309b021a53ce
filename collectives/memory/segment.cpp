// SPDX-License-Identifier: Apache-2.0
#include "collectives/memory/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "rendezvous/os/fd.h"

namespace hora::collectives {

// Opening takes two rounds among the ranks: index 0 offers what it has created, and every rank
// reports whether it could map that. Each rank takes part in both, even after a failure, so no rank
// waits for nothing. The first kind of memory that all ranks can map wins.

namespace {

enum class Kind : std::int32_t {
  kAnonymous,  // a memfd, opened through /proc: needs no removal, and no mount limits it
  kNamed,      // a file in /dev/shm, for ranks that cannot see each other's /proc entries
};

// How the others find what index 0 has created. Plain data: it travels as bytes.
struct Offer {
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  std::uint64_t nonce = 0;
  char path[128] = {};
  char error[512] = {};  // not empty: index 0 could not create anything
};

std::string reason() { return std::strerror(errno); }

Result<os::Fd> make_anonymous(std::size_t bytes) {
  os::Fd fd(memfd_create("hora", MFD_CLOEXEC));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return make_error(ErrorCode::kUnavailable, "creating shared memory: " + reason());
  }
  return fd;
}

Result<os::Fd> make_named(std::size_t bytes, const char* path) {
  os::Fd fd(::open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return make_error(ErrorCode::kUnavailable, "creating " + std::string(path) + ": " + reason());
  }
  // Allocate now: a page that /dev/shm cannot provide later would raise SIGBUS.
  const int failure = posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  if (failure == 0) return fd;
  struct statvfs space {};
  statvfs("/dev/shm", &space);
  // The file would keep what it has got so far.
  unlink(path);
  return make_error(
      ErrorCode::kUnavailable,
      "/dev/shm has " +
          std::to_string(static_cast<unsigned long long>(space.f_bavail) * space.f_frsize >> 20) +
          " MB free and " + std::to_string((bytes + (1u << 20) - 1) >> 20) + " MB are needed (" +
          std::strerror(failure) +
          "). Give the container more (docker run --shm-size=1g; Kubernetes: an emptyDir of medium "
          "Memory at /dev/shm), or set HORA_SHM_BYTES to less");
}

char* nonce_in(void* data, std::size_t bytes) {
  return static_cast<char*>(data) + bytes - sizeof Offer::nonce;
}

Result<void*> map(const os::Fd& fd, std::size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data != MAP_FAILED) return data;
  return make_error(ErrorCode::kUnavailable, "mapping shared memory: " + reason());
}

// Index 0's part. The last bytes, behind those that were asked for, hold the nonce: ranks that only
// seem to share a host find a different value there.
Result<void*> make(Kind kind, std::size_t bytes, Offer& offer, os::Fd& fd) {
  offer.pid = static_cast<std::int32_t>(getpid());
  // Any value will do without random numbers; the check is then only weaker.
  if (getrandom(&offer.nonce, sizeof offer.nonce, 0) != sizeof offer.nonce) offer.nonce = 1;
  if (kind == Kind::kNamed) {
    std::snprintf(offer.path, sizeof offer.path, "/dev/shm/hora-%d-%016llx", offer.pid,
                  static_cast<unsigned long long>(offer.nonce));
  }
  auto made = kind == Kind::kAnonymous ? make_anonymous(bytes) : make_named(bytes, offer.path);
  if (!made) {
    offer.path[0] = '\0';
    return std::move(made).error();
  }
  fd = std::move(*made);
  offer.fd = fd.get();
  auto data = map(fd, bytes);
  if (data) std::memcpy(nonce_in(*data, bytes), &offer.nonce, sizeof offer.nonce);
  return data;
}

// The part of the other ranks.
Result<void*> find(Kind kind, std::size_t bytes, const Offer& offer) {
  const std::string path = kind == Kind::kAnonymous ? "/proc/" + std::to_string(offer.pid) +
                                                          "/fd/" + std::to_string(offer.fd)
                                                    : std::string(offer.path);
  const os::Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) {
    return make_error(ErrorCode::kUnavailable, "opening " + path + ": " + reason());
  }
  auto data = map(fd, bytes);
  if (data && std::memcmp(nonce_in(*data, bytes), &offer.nonce, sizeof offer.nonce) != 0) {
    munmap(*data, bytes);
    return make_error(ErrorCode::kUnavailable, path + " on this host is not the memory of rank 0");
  }
  return data;
}

// Tries one kind of memory on all ranks together. Returns the mapping, or null and why not, the
// same on all ranks; an error only when the ranks cannot communicate.
Result<void*> attempt(Kind kind, std::span<const std::int32_t> ranks, int index, std::size_t bytes,
                      const Allgather& allgather, std::string& why_not) {
  Offer offer;
  os::Fd fd;
  Result<void*> data = static_cast<void*>(nullptr);
  if (index == 0) {
    data = make(kind, bytes, offer, fd);
    if (!data) std::snprintf(offer.error, sizeof offer.error, "%s", data.error().message.c_str());
  }
  const std::string path = offer.path;
  // Once all have mapped the file, its name is not needed and might remain.
  const auto clean_up = [&] {
    if (!path.empty()) unlink(path.c_str());
  };
  const auto forget = [&] {
    if (data && *data != nullptr) munmap(*data, bytes);
  };
  auto offers = allgather({reinterpret_cast<const char*>(&offer), sizeof offer});
  if (offers && offers->front().size() == sizeof offer) {
    std::memcpy(&offer, offers->front().data(), sizeof offer);
  } else if (offers) {
    std::snprintf(offer.error, sizeof offer.error, "no offer of shared memory came");
  }
  std::string mine = offer.error;
  if (offers && mine.empty() && index != 0) {
    data = find(kind, bytes, offer);
    if (!data) mine = data.error().message;
  }
  // A rank that has failed votes with its error instead of leaving.
  auto outcomes = offers ? allgather(mine) : std::move(offers);
  clean_up();
  if (!outcomes) {
    forget();
    return std::move(outcomes).error();
  }
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    if ((*outcomes)[i].empty()) continue;
    why_not = "rank " + std::to_string(ranks[i]) + ": " + (*outcomes)[i];
    forget();
    return static_cast<void*>(nullptr);
  }
  return data;
}

}  // namespace

Segment::Segment(Segment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      filled_(other.filled_) {}

// The other object unmaps what this one had.
Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(filled_, other.filled_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, size_);
}

Result<Segment> Segment::open(std::span<const std::int32_t> ranks, int index, std::size_t bytes,
                              const Allgather& allgather) {
  std::string why_not;
  // Memory in /dev/shm is allocated in full by make_named(), a memfd page by page.
  for (Kind kind : {Kind::kAnonymous, Kind::kNamed}) {
    // A failure of the exchange itself ends the attempt; "cannot share" goes on to the next kind.
    auto data = attempt(kind, ranks, index, bytes + sizeof Offer::nonce, allgather, why_not);
    if (!data) return std::move(data).error();
    if (*data != nullptr) {
      return Segment(*data, bytes + sizeof Offer::nonce, kind == Kind::kNamed);
    }
  }
  return make_error(ErrorCode::kUnavailable, why_not);
}

Result<Segment> Segment::open_private(std::size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return make_error(ErrorCode::kUnavailable, "allocating memory: " + reason());
  }
  return Segment(data, bytes, false);
}

}  // namespace hora::collectives
