// SPDX-License-Identifier: Apache-2.0
// The agents of a set of hosts: connects the hosts, greets the agents, ships the runtime to those
// that lack it, keeps heartbeats, and reports what happens to each host as one typed event. It
// decides nothing: the run, or the doctor, does. On the event loop's thread.
#pragma once

#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/fleet/fleet_event.h"
#include "launcher/fleet/host_link.h"
#include "launcher/network/network_choice.h"
#include "launcher/parts/bundle.h"
#include "launcher/plan/job_spec.h"
#include "launcher/process/one_cpu.h"
#include "launcher/protocol/agent_conversation.h"
#include "launcher/shipping/part_delivery.h"
#include "launcher/shipping/user_files.h"
#include "launcher/transports/transport.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class Fleet {
 public:
  struct Options {
    bool probes = false;                      // the agents will try each other's addresses
    bool loads_runtime = false;               // a host that cannot load the runtime is a Failure
    std::chrono::milliseconds lease{10'000};  // the longest silence of an agent
    MakeTransport make_remote = {};           // what reaches the hosts; none: `spec.transport` says
    const ShipFiles* ship_files = nullptr;    // whose folders all hosts are offered
  };
  // Hosts are numbered in the order in which they were added. Never called from within a call of
  // this class.
  using Handler = std::function<void(int host, FleetEvent event)>;

  // `spec` and `installation` must outlive this object.
  Fleet(os::EventLoop& loop, const JobSpec& spec, const Installation& installation, Options options,
        Handler handler);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // --- hosts ---
  int add(Host host, bool local);
  // Begins to connect; never blocks. A Failure: it could not even begin.
  std::optional<Failure> connect(int host, Clock::time_point deadline);
  void keep_first(int count);  // forgets the others, whose agents end by that
  int size() const { return static_cast<int>(members_.size()); }
  const std::string& name(int host) const { return member(host).host.name; }
  bool is_remote(int host) const { return !member(host).local; }
  bool is_open(int host) const { return member(host).link && member(host).link->is_open(); }
  // Grows while what the user ships reaches hosts that lack it; 0: all have all.
  std::uint64_t shipping() const;

  // --- what is known of them ---
  const std::optional<Hello>& hello(int host) const { return member(host).hello; }
  HostNetwork network(int host) const;  // it has greeted
  // The launcher's wall clock minus the host's; too large by no more than the quickest message
  // took.
  std::chrono::nanoseconds clock_offset(int host) const { return member(host).clock_offset; }
  std::size_t shipped_bytes(int host) const { return member(host).shipped_bytes; }
  // A vendor's library that was sent to some hosts.
  struct SentVendorPart {
    std::string name;
    std::size_t bytes = 0;  // for each host, as they travel
    int hosts = 0;
  };
  // Since the call before.
  std::vector<SentVendorPart> take_sent_vendor_parts() {
    return std::exchange(sent_vendor_parts_, {});
  }
  // The paths that the host's order prepends so that its ranks use vendors' libraries that were
  // sent, now or by an earlier job.
  std::vector<std::pair<std::string, std::string>> vendor_paths(int host) const;

  // --- what they are sent; nothing where the link is gone ---
  template <Framed Message>
  void send(int host, const Message& message) {
    if (member(host).link) member(host).link->send(message);
  }
  // Waits until the host has the runtime.
  void send(int host, const HostOrder& order);
  void send_start(int host);  // after its order, at once
  template <Framed Message>
  void send_all(const Message& message) {
    for (int host = 0; host < size(); ++host) send(host, message);
  }
  void ship(int host, const ShipFiles& files);
  // With `grace`, the agent is asked to end its ranks, and the link stays for its goodbye: false.
  // Nothing can run there while the order is still queued after other data.
  bool close(int host, std::optional<std::chrono::milliseconds> grace = {}, int signal = SIGTERM);

  // --- signs of life ---
  void begin_heartbeats();
  // Whether an agent on this machine is silent because it gets no time.
  bool has_slow_host() const;
  // This process was stopped for a while: messages of agents may have waited unread.
  void forgive_silence();

 private:
  struct Member {
    Host host;
    bool local = false;
    std::unique_ptr<HostLink> link;
    std::optional<Hello> hello;
    std::optional<Goodbye> goodbye;
    std::chrono::nanoseconds clock_offset{0};
    std::size_t shipped_bytes = 0;
    Supply supply;                   // of what has come
    std::optional<HostOrder> order;  // that waits for what the host lacks
    bool starts_with_order = false;
    bool left = false;  // AgentLeft was reported
  };

  Transport& transport_for(const Member& host);
  bool has_all(int host) const;
  Member& member(int host) { return members_[static_cast<std::size_t>(host)]; }
  const Member& member(int host) const { return members_[static_cast<std::size_t>(host)]; }
  void on_agent_event(int host, FleetEvent event);
  void on_hello(int host, Hello hello);
  void on_goodbye(int host, Goodbye goodbye);
  void on_tree_state(int host, const TreeState& state);
  void forget(int host);
  PartDelivery::Handlers delivery_handlers();
  TreeDelivery::Handlers tree_handlers();
  Result<PartDelivery::Frames> frames_of(const Build& build, const std::vector<std::string>& parts);
  void on_supplied(int host, const Supply& supply);
  void on_link_end(int host, std::string detail);
  void beat();

  os::EventLoop& loop_;
  const JobSpec& spec_;
  const Installation& installation_;
  Options options_;
  Handler handler_;
  const AgentImage image_;
  const StageObserver observer_;
  std::unique_ptr<Transport> local_;  // each is made when the first host needs it
  std::unique_ptr<Transport> remote_;
  std::unique_ptr<OneCpu> one_cpu_;  // where the launcher is together with its only agent, for now
  std::vector<Member> members_;
  // By hash; each is made for the first host that lacks it.
  std::map<std::string, std::shared_ptr<const std::string>> part_frames_;
  std::vector<SentVendorPart> sent_vendor_parts_;
  PartDelivery delivery_;
  TreeDelivery trees_;
  Clock::time_point next_beat_;
};

// The facts that each has reported so far, by host.
std::vector<std::optional<Hello>> hellos_of(const Fleet& fleet);

}  // namespace hora::launcher
