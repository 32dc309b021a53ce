// SPDX-License-Identifier: Apache-2.0
// Which machines have joined a job, and which it still waits for.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/host_list.h"

namespace hora::launcher {

class DialRoster {
 public:
  // `wanted`: the hosts of -H or a hostfile; no others are admitted, and all are waited for.
  // Without any, every machine is admitted, until there are `slots` slots.
  DialRoster(std::vector<Host> wanted, int slots) : wanted_(std::move(wanted)), slots_(slots) {}

  struct Verdict {
    std::string name;     // what the machine is called from now on
    std::string refusal;  // not empty: it is not let in, and this is why
  };
  // `address` is what it called from: its name where two machines say that they have the same one.
  Verdict join(const std::string& name, const std::string& address, int slots);
  void leave(const std::string& name);

  bool complete() const;
  std::size_t missing() const;  // of those that were wanted
  // The hosts that have joined: in the order of `wanted`, or of joining. Slots of -H win over those
  // that the machine offers.
  std::vector<Host> hosts() const;
  std::string standing() const;  // "3 of 4 slots (a:2,b:1)", "1 of 2 hosts; b is missing"

 private:
  struct Member {
    Host host;
    std::string address;
  };
  const Member* find(const std::string& name) const;
  const Host* find_wanted(const std::string& name) const;
  int joined_slots() const;

  std::vector<Host> wanted_;
  int slots_;
  std::vector<Member> members_;
};

}  // namespace hora::launcher
