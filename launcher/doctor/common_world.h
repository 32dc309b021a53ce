// SPDX-License-Identifier: Apache-2.0
// What hosts are examined for together: the links between them, in rounds, and a job in which one
// process of every host takes part.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/doctor/findings.h"
#include "launcher/fleet/network_survey.h"
#include "launcher/job/job_rendezvous.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher::doctor {

// Measures the links between hosts: in rounds, in each of which every host
// measures one other, and then those that look bad once more, one at a time. On
// the event loop's thread.

class PeerRounds {
 public:
  using Way = std::pair<int, int>;  // from host to peer
  struct Handlers {
    // Answered by on_answer(). False: one of the two takes part no longer.
    std::function<bool(int host, int peer)> measure;
    std::function<std::vector<Way>()> doubtful;  // asked for once, after the rounds
    std::function<void()> done;                  // once, unless this object is destroyed before
  };
  // How long a measurement may take.
  static constexpr std::chrono::milliseconds kTimeout{3'000};

  PeerRounds(os::EventLoop& loop, std::vector<int> hosts, Handlers handlers);
  ~PeerRounds() { loop_.cancel(timer_); }
  PeerRounds(const PeerRounds&) = delete;
  PeerRounds& operator=(const PeerRounds&) = delete;

  void begin();
  void on_answer(int host);
  void on_lost(int host) { on_answer(host); }

 private:
  void advance();
  void begin_round();
  void measure_doubtful();
  void wait();

  os::EventLoop& loop_;
  std::vector<int> hosts_;
  Handlers handlers_;
  int round_ = 0;
  std::optional<std::vector<Way>> doubtful_;  // once the rounds are over
  std::set<int> waiting_;                     // hosts whose answers are still to come
  os::EventLoop::TimerId timer_ = 0;
};

// The last part of an examination: one process of every host takes part in a job of all hosts,
// which meets as the ranks of a real one do, over the network that would be chosen for it.

class CommonWorld {
 public:
  struct Member {
    int host = 0;  // of the examination
    std::string name;
    HostNetwork network;
  };
  struct Actions {
    std::function<void(int host, const Probe& probe)> probe;  // answered by on_probe_result()
    std::function<void(int host, const std::string& line)>
        send_line;               // to hora-doctor; on_answer()
    std::function<void()> done;  // called once, from the loop
  };

  CommonWorld(os::EventLoop& loop, std::vector<Member> members, std::vector<std::string> wanted,
              Actions actions);

  // Every member must answer within `timeout`.
  void begin(std::chrono::milliseconds timeout);
  void on_probe_result(int host, ProbeResult result);
  void on_answer(int host, Json answer);
  void on_lost(int host);  // it will not answer any more
  bool over() const { return over_; }
  // {"ranks"}, and "error" or "failed", by the host's name: {"stage", "error"}, and "missing",
  // those that others waited for without an answer.
  Json result() const { return result_; }

 private:
  void on_network(NetworkSurvey::Choice choice);
  void give_up(const std::string& error);
  void finish_if_complete();
  void finish();

  os::EventLoop& loop_;
  std::vector<Member> members_;
  std::vector<std::string> wanted_;  // --network-interfaces
  Actions actions_;
  std::unique_ptr<NetworkSurvey> survey_;
  std::map<int, Json> answers_;
  std::unique_ptr<JobRendezvous> rendezvous_;
  bool over_ = false;
  os::EventLoop::TimerId timer_ = 0;
  Json result_;
};

}  // namespace hora::launcher::doctor
