// SPDX-License-Identifier: Apache-2.0
// Gets the agent to the hosts that lack it: carries out what SharePlan decides for the agent of
// each kind of processor. On the event loop's thread, except where AgentSharing says otherwise.
//
//   asks --> is sent it, or fetches it --> greets --> serves it, until all hosts have greeted
//
// The start script on a host has no clock, so all deadlines are here.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/shipping/share_plan.h"
#include "launcher/transports/agent_sharing.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class AgentDelivery : public AgentSharing {
 public:
  struct Handlers {
    // The agent of a host is to serve its program to clients with the token; to none, if empty.
    std::function<void(int host, const std::string& token)> serve;
    // Where others can reach this host, the most promising address first.
    std::function<std::vector<std::string>(int source)> addresses;
    std::function<int()> hosts;           // that the job has now
    std::function<bool()> more_may_come;  // hosts that have not greeted yet
    std::function<const std::string&(int host)> name;
    // Hosts do not reach each other.
    std::function<void()> on_given_up;
  };
  // `start_timeout`: what a host has for its whole start.
  AgentDelivery(os::EventLoop& loop, Sharing sharing, std::chrono::milliseconds start_timeout,
                Handlers handlers);
  ~AgentDelivery() override;
  AgentDelivery(const AgentDelivery&) = delete;
  AgentDelivery& operator=(const AgentDelivery&) = delete;

  // Whether hosts are to ask here at all, in a job of this size.
  bool shares(int hosts) const;
  // No request is answered any more: for the end of the transports that ask.
  void close();

  // --- AgentSharing ---
  void want(int host, const std::string& machine, Answer answer) override;
  void opened(int host, int number) override;
  void got(int host, int number) override;
  void missed(int host, int number, const std::string& reason) override;

  // --- what the fleet sees ---
  void greeted(int host);
  void serves(int host, int port);  // the answer to `serve`; 0: it cannot
  void lost(int host);

 private:
  // A host that has asked, as long as it is of use to others, or they to it.
  struct Guest {
    std::string machine;
    Answer answer;             // none once it has the agent, or will
    std::vector<int> sources;  // that are left to try; the first one is tried now
    int number = 0;            // of the offer that it tries; 0: none
    int port = 0;              // where it serves; 0: nowhere
    bool told_to_serve = false;
    os::EventLoop::TimerId deadline = 0;  // of the offer
    os::EventLoop::TimerId limit = 0;     // of all that it tries
  };

  template <typename Call>
  void post(Call call);
  void on_want(int host, const std::string& machine, Answer answer);
  void on_opened(int host, int number);
  void on_got(int host, int number);
  void on_late(int host);
  void on_missed(int host, int number, const std::string& reason);
  Guest* guest_of(int host, int number);
  SharePlan& plan_of(const std::string& machine);
  void carry_out(const SharePlan::Steps& steps);
  void send(int host);
  void offer(int host);
  void set_deadline(Guest& guest, int host, std::chrono::milliseconds patience,
                    const std::string& why);
  void end_offer(Guest& guest);
  void has_source(Guest& guest);
  void settle();
  void watch_waiting();
  void look_whether_given_up();

  os::EventLoop& loop_;
  Sharing sharing_;
  std::chrono::milliseconds start_timeout_;
  Handlers handlers_;
  std::string token_;                       // of the job
  std::map<std::string, SharePlan> plans_;  // by machine
  std::map<int, Guest> guests_;
  int last_number_ = 0;
  bool told_ = false;  // that some host could not fetch
  bool given_up_ = false;
  Clock::time_point moved_at_;
  os::EventLoop::TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // false: nothing posted counts
};

}  // namespace hora::launcher
