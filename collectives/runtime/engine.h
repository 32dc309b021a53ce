// The runtime of one rank: takes operations, agrees with the other ranks, runs what is agreed.
//
// One thread at a time drives it (driver.h); the queue, the set table, wake() and stop_now() are
// for any thread. Rank 0 also keeps the table of the coordination.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/control/exchanger.h"
#include "collectives/negotiation/blame.h"
#include "collectives/negotiation/coordinator.h"
#include "collectives/negotiation/response_cache.h"
#include "collectives/negotiation/stall_inspector.h"
#include "collectives/runtime/backend_pool.h"
#include "collectives/runtime/guard.h"
#include "collectives/runtime/process_set.h"
#include "collectives/runtime/request_queue.h"
#include "collectives/trace/observer.h"

namespace hora::collectives {

class Engine {
 public:
  // A world of one has a channel without peers. `world` and `observer` outlive the engine.
  Engine(const World& world, std::unique_ptr<ControlChannel> channel, Observer& observer);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Collective: backends for the world and for the static process sets. Before run(). When it fails
  // the world has ended, on all ranks.
  Status set_up();
  // For what the ranks tell each other before step().
  Exchanger& exchanger() { return *exchanger_; }
  // Does what there is to do; when there is nothing, waits for it until the deadline. Answers
  // whether it did something.
  bool step(Deadline deadline);
  // The world has shut down or broken, and every operation is finished.
  bool ended() const { return state_ != State::kRunning; }
  // After the end: gives the other ranks time to hear of it.
  void linger();
  // Null when only the runtime's own thread may drive.
  Seats* seats() const { return seats_.load(std::memory_order_acquire); }

  RequestQueue& queue() { return queue_; }
  const SetTable& sets() const { return set_table_; }
  const BackendPool& backends() const { return pool_; }
  // The queue has something, or stop_now() was called. Any thread.
  void wake();
  // Ends run() without the consent of the others. Any thread.
  void stop_now(std::string reason);

 private:
  enum class State { kRunning, kLeaving, kEnded };

  bool coordinates() const { return world_.settings.rank == 0; }
  Status equip();
  Status share_memory();
  Incoming take_message();
  void handle(Incoming message);
  bool coordinate();
  Deadline next_stall_check() const;
  void look_for_stalls();
  void carry_out(const std::vector<Verdict>& verdicts);
  void run_step(const std::vector<const Verdict*>& verdicts);
  void run_collective(ProcessSet& set, const std::vector<const Verdict*>& verdicts);
  void add_set(const Verdict& verdict, const OperationPtr& operation);
  void remove_set(const Verdict& verdict, const OperationPtr& operation);
  void finish(const OperationPtr& operation, hora_status status, std::string text);
  OperationPtr take_pending(ProcessSet& set, const Verdict& verdict);
  void wait_for_messages(Deadline deadline);
  Status make_set(std::int32_t id, std::vector<std::int32_t> ranks);
  std::string name_rank(int rank) const;
  std::optional<std::string> stop_reason();
  const Introduction& agreed_settings() const { return world_.introductions.front(); }

  // engine_talk.cpp
  bool take_submissions();
  void handle_requests(int rank, std::string_view bytes);
  void ask_in_full(std::string_view bytes);
  void take_own_column(Verdict& verdict);
  void announce(const std::vector<Verdict>& verdicts);
  static CacheId learn(ProcessSet& set, const Verdict& verdict);
  std::string encode_verdicts_for(int rank, const std::vector<Verdict>& verdicts,
                                  const std::vector<CacheId>& numbers);
  void handle_verdicts(std::string_view bytes);

  // engine_end.cpp
  void leave(const Verdict& verdict);
  void handle_bad_news(const Incoming& incoming);
  void look_for_evidence(Deadline deadline);
  void data_plane_failed(const std::string& text);
  void wait_for_bad_news(Deadline deadline);
  void give_up(const std::string& text);
  void end_world(const std::string& text);
  void fail_everything(const std::string& text);

  const World& world_;
  Observer& observer_;
  std::unique_ptr<ControlChannel> channel_;
  std::optional<Exchanger> exchanger_;
  BackendPool pool_;
  std::map<std::int32_t, std::unique_ptr<ProcessSet>> sets_;
  std::optional<Coordinator> coordinator_;  // rank 0
  StallInspector stalls_;                   // coordinator
  std::optional<Guard> guard_;
  std::atomic<Seats*> seats_{nullptr};
  std::deque<Incoming> inbox_;  // arrived, not yet handled
  std::atomic<State> state_{State::kRunning};
  std::vector<char> finished_;  // coordinator, leaving: by rank
  Blame blame_;                 // coordinator
  int gone_count_ = 0;          // peers whose connection has ended
  std::string end_text_;        // why the world ended, once it has

  RequestQueue queue_;
  SetTable set_table_;
  std::atomic<bool> stopping_{false};
  std::mutex stop_mutex_;
  std::optional<std::string> stop_reason_;
};

}  // namespace hora::collectives
