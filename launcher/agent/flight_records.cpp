#include "launcher/agent/flight_records.h"

#include <sys/mman.h>
#include <unistd.h>

#include <chrono>

#include "rendezvous/base/time.h"
#include "rendezvous/contract/flight_record.h"

namespace hora::launcher {

using rendezvous::FlightPage;

FlightRecords FlightRecords::create(int ranks) {
  FlightRecords records;
  records.fd_ = os::Fd(::memfd_create("hora-flight", MFD_CLOEXEC));
  if (!records.fd_.valid()) return records;
  FlightPage empty;
  empty.magic = rendezvous::kFlightMagic;
  for (; records.pages_ < ranks; ++records.pages_) {
    if (::write(records.fd_.get(), &empty, sizeof empty) != sizeof empty) return records;
  }
  records.path_ =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(records.fd_.get());
  return records;
}

// Read, not mapped: a rank may have cut the file short. Usually the pages lie in the ranks' order.
std::string FlightRecords::last_of(int rank) const {
  for (int page = 0; page < pages_; ++page) {
    std::string bytes(sizeof(FlightPage), '\0');
    const auto offset = static_cast<off_t>(page) * static_cast<off_t>(sizeof(FlightPage));
    if (::pread(fd_.get(), bytes.data(), bytes.size(), offset) !=
            static_cast<ssize_t>(bytes.size()) ||
        rendezvous::flight_rank(bytes) != rank) {
      continue;
    }
    const auto now = Clock::now().time_since_epoch();
    return rendezvous::describe_flight(
        bytes, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }
  return {};
}

}  // namespace hora::launcher
