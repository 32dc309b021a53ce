// SPDX-License-Identifier: Apache-2.0
// One host as the launcher sees it: the agent's side of the protocol, with ranks that are numbers.
// What is before the first '-' of its name says how it behaves:
//   slow     answers the first frame, and each later one, half a second late
//   silent   never says a word
//   mute     falls silent once its ranks run: no output, no heartbeat
//   gone     ends its stream once its ranks run
//   refuses  answers the order with a failure
// and any other name is a host that works as it should.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/protocol/messages.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"
#include "tests/support/transports/simulated/rank_script.h"

namespace hora::test {

// Steps of the start and the end, in their order.
enum class Step : std::uint8_t { kHello, kOrder, kReady, kStart, kStarted, kExits, kGoodbye };

class SimulatedHost {
 public:
  struct Handlers {
    std::function<void(Step)> reached;
    std::function<void(launcher::FrameType, std::size_t bytes, bool sent)> counted;
    std::function<void(std::string why)> broken;  // the launcher said what it never says
    std::function<void()> over;
  };
  SimulatedHost(os::EventLoop& loop, os::Fd stream, std::string name, int index, Handlers handlers);
  ~SimulatedHost();
  SimulatedHost(const SimulatedHost&) = delete;
  SimulatedHost& operator=(const SimulatedHost&) = delete;

  Status begin();

 private:
  enum class Behaviour : std::uint8_t { kUsual, kSlow, kSilent, kMute, kGone, kRefuses };
  struct Rank {
    std::size_t written = 0;
    bool ended = false;
  };

  void on_io(std::uint32_t events);
  void read_some();
  void take(launcher::Frame frame);
  void act(const launcher::Frame& frame);
  void greet();
  void take_order(std::string_view payload);
  void answer_probe(std::string_view payload);
  void start_ranks();
  void write_output();
  void end_ranks(int signal);
  void end_rank(int rank, int exit_code, int signal);
  launcher::RankSamples samples();
  void leave();
  void beat();
  void send(launcher::FrameType type, std::string_view payload = {});
  void flush();
  void close();

  os::EventLoop& loop_;
  os::Fd stream_;
  const std::string name_;
  const int index_;
  const Behaviour behaviour_;
  Handlers handlers_;
  launcher::FrameReader frames_;
  std::string outgoing_;
  bool waits_to_write_ = false;
  RankScript script_;
  std::map<int, Rank> ranks_;
  std::int64_t asked_ = 0;  // for samples
  std::map<int, Rank>::iterator turn_ = ranks_.end();
  bool running_ = false;
  bool time_is_up_ = false;
  bool left_ = false;  // has said goodbye, or is about to
  bool over_ = false;
  std::size_t output_credit_ = 0;
  Milliseconds pause_{2'500};  // between two heartbeats
  os::EventLoop::TimerId heartbeat_ = 0;
  os::EventLoop::TimerId end_ = 0;
  std::deque<launcher::Frame> late_;
  os::EventLoop::TimerId delay_ = 0;
};

}  // namespace hora::test
