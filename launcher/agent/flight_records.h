// What the ranks of this host say of themselves while they run, kept for after their death.
//
// Memory of the agent without a name in any file system: the ranks reach it by way of /proc, and it
// is gone with the agent.
#pragma once

#include <string>

#include "rendezvous/os/fd.h"

namespace hora::launcher {

class FlightRecords {
 public:
  // A page for each of `ranks` local ranks. Where the kernel has no such memory there is no record.
  static FlightRecords create(int ranks);

  // The path that the ranks open; empty: there is none.
  const std::string& path() const { return path_; }
  // "was in allreduce 'grad/7' for 2.1 s": what that rank did until now. Empty: not known.
  std::string last_of(int rank) const;

 private:
  os::Fd fd_;
  int pages_ = 0;
  std::string path_;
};

}  // namespace hora::launcher
