// SPDX-License-Identifier: Apache-2.0
// Small operations that all ranks have agreed on before, through the fast path: what this rank has
// there, and whether to use it.
//
// Belongs to the thread that drives the runtime, but for what is said to be for any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/runtime/fast_path_payload.h"
#include "collectives/runtime/mailbox.h"
#include "collectives/runtime/negotiator.h"
#include "collectives/runtime/request_queue.h"
#include "collectives/runtime/shutdown.h"
#include "collectives/runtime/stall_monitor.h"
#include "collectives/runtime/step_runner.h"
#include "collectives/runtime/tuner.h"
#include "collectives/runtime/world.h"
#include "collectives/trace/observer.h"

namespace hora::collectives {

// What became of an operation that a caller wants at once.
enum class AtOnce { kNotBegun, kUnderWay, kDone };

class FastPathDriver {
 public:
  struct Links {
    const World& world;
    Mailbox& mailbox;
    const ProcessSets& sets;
    RequestQueue& queue;  // where finished operations leave their names
    Observer& observer;
    const Tuner& tuner;
    Negotiator& negotiator;   // gets the operations that failed in the fast path
    const StepRunner& steps;  // for a place in the observer's books
    StallMonitor& stalls;
    Shutdown& shutdown;
  };
  explicit FastPathDriver(const Links& links) : links_(links) {}

  // Between hosts, as the backends know it; before set_up().
  void set_round_trip(std::chrono::microseconds round_trip) { round_trip_ = round_trip; }
  // The world's backends are there: which operations may go this way.
  void set_up(const ProcessSet& set);

  // Whether the operation, the only one that was submitted, is in the fast path now.
  bool take(OperationPtr& operation);
  // Takes a join of the world out of the submitted operations while another one is in there. It is
  // requested after that.
  void hold_join_back(std::vector<OperationPtr>& submitted);
  // A prepared operation, while this rank has nothing in flight: posts it, and polls for a while.
  // kNotBegun: it must go through the queue; kUnderWay: it is in the fast path now.
  AtOnce run_at_once(const OperationPtr& operation, Waiters& waiters);
  // The operation in there; null: none.
  const Operation* operation() const { return operation_.get(); }
  OperationPtr take_back() { return std::exchange(operation_, nullptr); }
  // Does what the fast path asks for. Answers whether there was something.
  bool poll();
  // So that rank 0 learns which ranks are missing: when the operation is not through at due().
  void call_if_late();
  Deadline due() const { return operation_ ? call_at_ : Deadline::max(); }

  // Decisions of the fast path of several hosts come over other connections than rank 0's messages.
  // A rank that ends the job publishes how far it has seen turns decided; all others reach that
  // point before they leave.
  void note_turn(Request& shutdown) const;
  void catch_up(const Request& shutdown);

  // The messages of the control channel. False: it is malformed.
  [[nodiscard]] bool handle_posted(int rank, std::string_view bytes);
  [[nodiscard]] bool handle_call(std::string_view bytes);

  // How many operations have gone this way. Any thread.
  std::uint64_t runs() const { return runs_.load(std::memory_order_relaxed); }

 private:
  bool poll_turns();
  FastPath* fast_path() const { return links_.mailbox.channel().fast_path(); }
  bool coordinates() const { return links_.world.coordinates(); }
  bool is_free() const;
  std::uint64_t find_prepared(Operation& operation);
  void find_rows(const Operation& operation, std::uint64_t number);
  bool go_on_between_hosts(LeaderFastPath& fast_path);
  void report_posted(LeaderFastPath& fast_path);
  void call_for(LeaderFastPath& fast_path, int rank, std::uint64_t turn);
  void look_for_stopped_ranks(const FastPath& fast_path, Clock::time_point now);
  void go_to_second_turn(FastPath& fast_path, const Operation& operation);
  bool came_at_once(Waiters& waiters, std::uint64_t number);
  void unpack(FastPath& fast_path, Operation& operation);
  void run(FastPath& fast_path, const ProcessSet& world, Operation& operation);

  Links links_;
  FastPathTable rows_;
  std::chrono::microseconds round_trip_{0};
  std::size_t shares_from_ = 0;  // bytes from which on each host reduces a share
  OperationPtr operation_;
  bool join_waits_ = false;  // ProcessSet::joining of the world is not asked for yet
  std::vector<std::int64_t> rows_in_result_;  // by find_rows(), of the operation in there
  bool second_turn_ = false;  // all have posted what is in there, and reduce their shares
  std::optional<FastPathPayload> load_;  // of a leader among hosts
  bool open_ = false;                    // all is set up; the fast path may have messages
  std::uint64_t reported_ = 0;           // the latest turn in which rank 0 got this rank's requests
  std::uint64_t called_ = 0;  // rank 0: the latest turn in which it has called the others
  Deadline call_at_ = Deadline::max();
  bool warned_ = false;  // rank 0: of a rank that does not answer
  int pause_ = 0;        // operations that are not to try it
  int next_pause_ = 1;
  std::atomic<std::uint64_t> runs_{0};
};

}  // namespace hora::collectives
