// SPDX-License-Identifier: Apache-2.0
// Connections between the ranks of one host, while a world of several hosts is set up. What only
// they exchange would otherwise travel to rank 0's host and back, once for each exchange.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/control/control_channel.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

// A UNIX socket that the other ranks of the host find by its card, which travels with what ranks
// send each other when they meet.
struct LocalListener {
  os::Fd socket;
  std::string card;  // empty: there is none

  static LocalListener open();
};

// Whether ranks with these cards can meet: the same on all of them.
bool can_meet_on_host(const std::vector<std::string>& cards);

// Collective over the ranks of a host: a star around the first one, in which ranks have their place
// on the host as number. kInterrupted when `broken_off` returns true, which is asked now and then.
Result<std::unique_ptr<ControlChannel>> meet_on_host(LocalListener listener,
                                                     const std::vector<std::string>& cards,
                                                     int place, Deadline deadline,
                                                     const std::function<bool()>& broken_off);

}  // namespace hora::collectives
