// SPDX-License-Identifier: Apache-2.0
// Gets the parts of the runtime to the hosts that lack them: carries out what SharePlan decides for
// each part. On the event loop's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/shipping/share_plan.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// How a host has got what it lacked.
struct Supply {
  std::size_t sent_bytes = 0;     // by the launcher
  std::size_t fetched_bytes = 0;  // from other hosts
  std::vector<std::string> sources;
};

class PartDelivery {
 public:
  struct Handlers {
    std::function<void(int host, std::shared_ptr<const std::string> frames)> send;
    std::function<void(int host, const KeepDelivery&)> keep;
    std::function<void(int host, const FetchDelivery&)> fetch;
    // One delivery; empty: all.
    std::function<void(int host, const std::string& id)> forget;
    // How `host` can reach `source`, without the port.
    std::function<DeliverySource(int source, int host)> find_source;
    // All missing parts are on the host, or will be when it has read what was sent. May come from
    // within any call.
    std::function<void(int host, const Supply&)> on_complete;
    // Hosts that have not said yet what they lack.
    std::function<bool()> more_may_come;
    std::function<const std::string&(int host)> name;
    // Less is under way than before.
    std::function<void()> on_settled;
  };
  PartDelivery(os::EventLoop& loop, Sharing sharing, Handlers handlers);
  ~PartDelivery();
  PartDelivery(const PartDelivery&) = delete;
  PartDelivery& operator=(const PartDelivery&) = delete;

  // `frames` by part; `hosts`: how many the job has.
  using Frames = std::map<std::string, std::shared_ptr<const std::string>>;
  void want(int host, const Frames& parts, int hosts);
  void on_report(int host, const DeliveryReport& report);
  void lost(int host);
  // A host has greeted that lacks nothing.
  void greeted() { settle(); }

  bool is_complete(int host) const { return pending_.count(host) == 0; }
  std::uint64_t fetched_bytes() const { return fetched_bytes_; }  // by all hosts, so far
  // Of parts that some host still waits for.
  std::size_t unsettled_bytes() const { return unsettled_bytes_; }

 private:
  struct Part {
    explicit Part(Sharing sharing) : plan(sharing) {}
    SharePlan plan;
    std::string id;  // of its delivery, once it is shared
    std::size_t bytes = 0;
    std::shared_ptr<const std::string> frames;  // while some host waits for it
    std::set<int> holders;                      // that keep it for others
    std::map<int, int> ports;                   // of hosts that serve it
    std::map<int, std::vector<int>> fetches;    // the sources that each host tries
  };
  struct Pending {
    std::set<const Part*> parts;
    Supply supply;
  };

  void carry_out(Part& part, const SharePlan::Steps& steps);
  void send(Part& part, int host);
  void fetch(Part& part, int host, const std::vector<int>& sources);
  void note_refusals(Part& part, int host, const DeliveryReport& report);
  void has_come(const Part& part, int host);
  void settle();
  void release(Part& part);
  void forget(Part& part);
  void hold(Part& part, int host);
  void watch_waiting();

  os::EventLoop& loop_;
  Sharing sharing_;
  Handlers handlers_;
  std::string key_;                    // of the job; a secret
  std::map<std::string, Part> parts_;  // by hash
  std::size_t shared_bytes_ = 0;       // that hosts keep
  std::size_t unsettled_bytes_ = 0;
  std::uint64_t fetched_bytes_ = 0;
  std::map<int, Pending> pending_;  // hosts that lack something
  std::set<int> holders_;           // that keep something for others
  bool reported_ = false;           // that some host could not fetch
  Clock::time_point moved_at_;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
