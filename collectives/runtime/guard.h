// Watches the control connections while the runtime's own thread may be blocked in a vendor's
// library, and interrupts it when a peer has gone. Sleeps otherwise.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "rendezvous/os/fd.h"

namespace hora::collectives {

class Guard {
 public:
  // `on_break` is called once, on the guard's thread, when the other end of one of `fds` is gone.
  // The descriptors must stay open until stop().
  Guard(std::vector<int> fds, std::function<void()> on_break);
  ~Guard() { stop(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // From now on nothing is called. Idempotent.
  void stop();

 private:
  void watch();

  std::vector<int> fds_;
  std::function<void()> on_break_;
  os::Fd stop_;
  std::thread thread_;
};

}  // namespace hora::collectives
