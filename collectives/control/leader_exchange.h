// SPDX-License-Identifier: Apache-2.0
// What the leaders of hosts exchange on the fast path, and in which order.  [pure]
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hora::collectives {

// Which rank leads each host, and what the leaders exchange so that all know what each of them
// brought.
// Recursive doubling: with every step a leader covers twice as many hosts. The hosts beyond the
// largest power of two give their share to a partner and get the result back. The lower host's
// operand is always on the left, as in PointToPoint, so the resulting bits are the same.

// A large operand is halved instead if the number of hosts is a power of two: with every step, a
// leader keeps the half that its bit of that distance says, and gives the other one. That leaves it
// with its share of the result. The same steps in the reverse order give the shares back
// (returning_steps).
struct LeaderStep {
  int peer = 0;  // a host
  bool sends = false;
  bool receives = false;
  bool result = false;     // the received bytes are the result: do not combine them
  std::vector<int> gives;  // the hosts whose share this step sends, ascending
  std::vector<int> gets;   // and receives
};

struct LeaderPlan {
  std::vector<std::vector<std::int32_t>> members;  // ranks by host, ascending; the first leads
  int host = 0;                                    // of this rank
  int place = 0;                                   // of this rank among its host's
  std::vector<LeaderStep> steps;                   // what this host's leader does, in order
  std::vector<int> peers;                          // the hosts in `steps`, ascending

  bool leads() const { return place == 0; }
  int hosts() const { return static_cast<int>(members.size()); }
  bool has_partners() const;  // whether there are hosts beyond the largest power of two
  int most_members() const;
  const std::vector<std::int32_t>& here() const { return members[static_cast<std::size_t>(host)]; }
  std::int32_t leader_of(int of) const { return members[static_cast<std::size_t>(of)].front(); }
};

// `hosts` holds each rank's host index, counted from 0 in the order of the ranks.
LeaderPlan plan_leaders(const std::vector<std::int32_t>& hosts, int rank);

// The steps of the leader of `host` among `hosts` leaders.
std::vector<LeaderStep> leader_steps(int host, int hosts);
// For shares, after the other steps; hosts are a power of two.
std::vector<LeaderStep> returning_steps(std::vector<LeaderStep> steps);
// The hosts with which that leader exchanges messages, ascending.
std::vector<int> leader_peers(int host, int hosts);

// How the leaders of several hosts agree on one turn of the fast path and pass on what their hosts
// have posted. Each step of LeaderPlan is one message. The caller sends the messages.

class LeaderExchange {
 public:
  // Sent together with the number, as long as all have brought the same one. The caller owns it.
  class Payload {
   public:
    // Called before the first step (bring) and after the last one (finish).
    virtual void bring() = 0;
    virtual void finish() = 0;
    // Whether each host reduces a share, which returning_steps() give to the others.
    virtual bool in_shares() const = 0;
    // Appends to `message` what the step sends.
    virtual void give(const LeaderStep& step, std::string& message) = 0;
    // False when the bytes are not what the step receives.
    virtual bool take(const LeaderStep& step, std::string_view bytes) = 0;

   protected:
    ~Payload() = default;
  };

  LeaderExchange(std::vector<LeaderStep> steps, std::function<void(int, std::string_view)> send);

  // Accepts a message from the leader of a host, possibly ahead of its step.
  void arrived(int host, std::string message);
  // The latest turn, beyond all those begun here, that another leader has begun; 0: none.
  std::uint64_t received() const { return received_; }

  // `number` is 0 when this host's ranks have brought different ones.
  void begin(std::uint64_t turn, std::uint64_t number);
  bool running() const { return running_; }
  // True when go_on() can take a step: the exchange has just begun, or the awaited message has
  // arrived.
  bool can_go_on() const;
  // Takes as many steps as it can. `load` is the same object for the whole turn, and unused while
  // the number is 0. False when a message is malformed.
  bool go_on(Payload* load);
  // The outcome of the latest exchange: the number that all have brought; 0 when they differ.
  std::uint64_t number() const { return number_; }

 private:
  void send(const LeaderStep& step, Payload* load);
  bool take(const LeaderStep& step, Payload* load);

  // The deciding steps, then those that return shares.
  std::vector<LeaderStep> steps_;
  std::size_t deciding_;
  std::function<void(int, std::string_view)> send_;
  std::map<int, std::deque<std::string>> inbox_;  // by host
  std::uint64_t turn_ = 0;
  std::uint64_t number_ = 0;
  std::uint64_t received_ = 0;
  bool running_ = false;
  bool brought_ = false;
  bool sent_ = false;  // the current step's message has gone out
  std::size_t step_ = 0;
  std::string message_;
};

}  // namespace hora::collectives
