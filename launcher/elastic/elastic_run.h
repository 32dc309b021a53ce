// SPDX-License-Identifier: Apache-2.0
// What a Supervisor keeps in addition for an elastic job.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "launcher/elastic/elastic_state.h"
#include "launcher/elastic/horovod_notifier.h"
#include "launcher/elastic/host_discovery.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher::elastic {

struct ElasticRun {
  explicit ElasticRun(ElasticState made) : state(std::move(made)) {}

  ElasticState state;
  std::unique_ptr<HostDiscovery> discovery;   // none: the hosts are fixed
  std::unique_ptr<HorovodNotifier> notifier;  // only for workers that are not ours
  std::deque<ElasticEvent> events;            // that came while one was being obeyed
  bool is_obeying = false;
  os::EventLoop::TimerId timer = 0;
  int known_workers = 0;                // to the streams
  int host_updates = 0;                 // told in this epoch
  std::vector<std::string> interfaces;  // of the hosts of this epoch's plan
  bool discovered = false;              // the script has told hosts once
  std::string discovery_problem;
};

}  // namespace hora::launcher::elastic
