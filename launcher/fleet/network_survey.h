// SPDX-License-Identifier: Apache-2.0
// Finds the network over which hosts reach each other: every host tries the addresses of the
// others, and the choice is made from the answers. One survey per choice; on the loop's thread.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "launcher/network/network_choice.h"

namespace hora::launcher {

class NetworkSurvey {
 public:
  using Choice = std::variant<NetworkChoice, Failure>;
  struct Member {
    int host = 0;  // its number in the fleet
    HostNetwork network;
  };
  struct Handlers {
    std::function<void(int host, const Probe& probe)> probe;  // answered by on_result()
    // Once, from begin() where nothing is to be tried. The routes are in the order of the members.
    std::function<void(Choice choice)> done;
  };

  // `own` is this machine, `wanted` is --network-interfaces.
  NetworkSurvey(std::vector<Member> members, HostNetwork own, std::vector<std::string> wanted,
                Handlers handlers, WayBack way_back = WayBack::kNeeded);

  void begin();
  void on_result(int host, ProbeResult result);
  // It will not answer any more; the choice is made without what it would say.
  void on_lost(int host);

 private:
  void choose_if_complete();
  std::vector<HostNetwork> networks() const;

  std::vector<Member> members_;
  HostNetwork own_;
  std::vector<std::string> wanted_;
  Handlers handlers_;
  WayBack way_back_;
  std::set<int> waiting_;  // hosts whose answers are still to come
  std::map<int, ProbeResult> answers_;
  bool over_ = false;
};

}  // namespace hora::launcher
