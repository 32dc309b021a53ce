// SPDX-License-Identifier: Apache-2.0
// The runtime of one rank: takes operations, agrees with the other ranks, runs what is agreed.
//
// One thread at a time drives it (driver.h); the queue, the set table, wake() and stop_now() are
// for any thread. The parts that it goes round have files of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/runtime/backend_pool.h"
#include "collectives/runtime/channel_bootstrap.h"
#include "collectives/runtime/fast_path_driver.h"
#include "collectives/runtime/mailbox.h"
#include "collectives/runtime/negotiator.h"
#include "collectives/runtime/process_set.h"
#include "collectives/runtime/repeated_calls.h"
#include "collectives/runtime/request_queue.h"
#include "collectives/runtime/shutdown.h"
#include "collectives/runtime/stall_monitor.h"
#include "collectives/runtime/step_runner.h"
#include "collectives/runtime/tuner.h"
#include "collectives/runtime/world.h"
#include "collectives/trace/observer.h"

namespace hora::collectives {

class Engine {
 public:
  // A world of one has a channel without peers. `world` and `observer` outlive the engine.
  // `heartbeat`: the one whose card the other ranks have.
  Engine(const World& world, std::unique_ptr<ControlChannel> channel, Observer& observer,
         std::optional<Heartbeat> heartbeat = std::nullopt);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Collective: backends for the world and for the static process sets. Before run(). When it fails
  // the world has ended, on all ranks.
  // `listeners`: those whose cards the other ranks have.
  struct Listeners {
    LocalListener on_host;
    OwnSockets between_hosts;
    ListeningLinks links;
  };
  Status set_up(Listeners listeners = {});
  // Call it when the common work before step() has failed: ends the world. Returns the reason that
  // all ranks get.
  Error fail_to_join(const Error& error);
  // For the exchange of the ranks before step().
  OobAllgather& oob() { return mailbox_.oob(); }
  // Does what there is to do; when there is nothing, waits for it until the deadline. Answers
  // whether it did something. Unless `take`, what is in the queue stays there.
  bool step(Deadline deadline, bool take = true);
  // Takes what was submitted. If that is this operation alone, and small, it is through when this
  // returns, unless another rank lets it wait. Steps are to follow. Where there are waiters.
  void progress_inline(const Operation& operation);
  // An operation that is prepared, and not in the queue. kDone: without a failure. Where there are
  // waiters. noexcept as Driver::drive().
  AtOnce run_at_once(const OperationPtr& operation) noexcept;
  // The last step has received something that only the next one may act on.
  bool unfinished() const { return unfinished_; }
  // When step() is to be called although nothing has come.
  Deadline fast_path_due() const { return fast_path_.due(); }
  // The world has shut down or broken, and every operation is finished.
  bool ended() const { return shutdown_.ended(); }
  // After the end: gives the other ranks time to learn of it.
  void linger() { shutdown_.linger(); }
  // Null when only the runtime's own thread may drive.
  Waiters* waiters() const { return waiters_.load(std::memory_order_acquire); }

  // How many operations have gone through the fast path. Any thread.
  std::uint64_t fast_path_runs() const { return fast_path_.runs(); }
  // Null when there is no fast path; then why. Fixed by set_up().
  const FastPath* fast_path() const { return mailbox_.channel().fast_path(); }
  const BootstrapResult& met() const { return met_; }
  // Null where the fast path is not between hosts.
  const LeaderPlan* leaders() const;

  RequestQueue& queue() { return queue_; }
  RepeatedCalls& repeated_calls() { return repeated_calls_; }
  const SetTable& sets() const { return sets_.table(); }
  const BackendPool& backends() const { return pool_; }
  // Change with operations only: stay the same while this rank has none in flight.
  const Parameters& parameters() const { return tuner_.parameters(); }
  // The queue has something, or stop_now() was called. Any thread.
  void wake() { mailbox_.channel().wake(); }
  // Ends run() without the consent of the others. Any thread.
  void stop_now(std::string reason) { shutdown_.stop_now(std::move(reason)); }

 private:
  void meet_on_host(LocalListener listener);
  Status create_backends(OwnSockets sockets);
  void log_backends();
  Status make_set(std::int32_t id, std::vector<std::int32_t> ranks);
  bool take_submissions();
  bool coordinate();
  void update_watchdog();
  void handle(const Incoming& incoming);
  void carry_out(const std::vector<AgreedOp>& list);
  void carry_out(Sequence& sequence);
  std::vector<std::vector<std::size_t>> plan_steps(
      const std::vector<const Response*>& responses) const;
  std::int64_t threshold_of(std::int32_t set) const;
  void run_step(const std::vector<const AgreedOp*>& step);
  void leave(const Response& response);
  void add_set(const Response& response, const OperationPtr& operation);
  void remove_set(const Response& response, const OperationPtr& operation);
  void fail_operations(const std::string& text);

  const World& world_;
  Observer& observer_;
  Mailbox mailbox_;
  BackendPool pool_;
  ProcessSets sets_;
  RequestQueue queue_;
  Tuner tuner_;
  Shutdown shutdown_;
  StallMonitor stalls_;
  Negotiator negotiator_;
  StepRunner steps_;
  FastPathDriver fast_path_;
  RepeatedCalls repeated_calls_;
  BootstrapResult met_;
  std::atomic<Waiters*> waiters_{nullptr};
  bool unfinished_ = false;
  std::vector<OperationPtr> taken_;  // from the queue, last
};

}  // namespace hora::collectives
