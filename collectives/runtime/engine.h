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
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/control/oob_allgather.h"
#include "collectives/negotiation/coordinator.h"
#include "collectives/negotiation/item_list.h"
#include "collectives/negotiation/response_cache.h"
#include "collectives/negotiation/root_cause.h"
#include "collectives/negotiation/stall_inspector.h"
#include "collectives/runtime/backend_pool.h"
#include "collectives/runtime/executor.h"
#include "collectives/runtime/fast_path_payload.h"
#include "collectives/runtime/process_set.h"
#include "collectives/runtime/request_queue.h"
#include "collectives/runtime/tuning.h"
#include "collectives/runtime/watchdog.h"
#include "collectives/trace/observer.h"

namespace hora::collectives {

class Engine {
 public:
  // A world of one has a channel without peers. `world` and `observer` outlive the engine. `signs`
  // are those whose card the others have.
  Engine(const World& world, std::unique_ptr<ControlChannel> channel, Observer& observer,
         std::optional<Heartbeat> signs = std::nullopt);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Collective: backends for the world and for the static process sets. Before run(). When it fails
  // the world has ended, on all ranks.
  Status set_up();
  // What is to be done together before step() has failed: ends the world. Answers why, as all are
  // told.
  Error fail_to_join(const Error& error);
  // For what the ranks tell each other before step().
  OobAllgather& oob() { return *oob_; }
  // Does what there is to do; when there is nothing, waits for it until the deadline. Answers
  // whether it did something. Unless `take`, what is in the queue stays there.
  bool step(Deadline deadline, bool take = true);
  // Takes what was submitted. If that is this operation alone, and small, it is through when this
  // returns, unless another rank lets it wait. Steps are to follow. Where there are waiters.
  void progress_inline(const Operation& operation);
  // The last step has heard something that only the next one may act on.
  bool unfinished() const { return unfinished_; }
  // When step() is to be called although nothing has come.
  Deadline fast_path_due() const;
  // The world has shut down or broken, and every operation is finished.
  bool ended() const { return state_ != State::kRunning; }
  // After the end: gives the other ranks time to hear of it.
  void linger();
  // Null when only the runtime's own thread may drive.
  Waiters* waiters() const { return waiters_.load(std::memory_order_acquire); }

  // How many operations have gone through the fast path. Any thread.
  std::uint64_t fast_path_runs() const { return fast_path_runs_.load(std::memory_order_relaxed); }
  // Null when there is no fast path; then why. Fixed by set_up().
  const FastPath* fast_path() const { return channel_->fast_path(); }
  const std::string& why_no_fast_path() const { return why_no_fast_path_; }
  // Null where the fast path is not between hosts.
  const LeaderPlan* leaders() const;

  RequestQueue& queue() { return queue_; }
  const SetTable& sets() const { return set_table_; }
  const BackendPool& backends() const { return pool_; }
  // Change with operations only: stay the same while this rank has none in flight.
  const Parameters& parameters() const { return parameters_; }
  // The queue has something, or stop_now() was called. Any thread.
  void wake();
  // Ends run() without the consent of the others. Any thread.
  void stop_now(std::string reason);

 private:
  enum class State { kRunning, kLeaving, kEnded };
  // What is to be run next.
  struct AgreedOp {
    const Response* response = nullptr;
    std::unique_ptr<Response> made;   // unless the response cache has it
    CacheId number = 0;               // by which it is told; 0: in full
    std::uint64_t hash = 0;           // of its name
    const Operation* mine = nullptr;  // this rank's, pending; null when it takes no part
  };
  AgreedOp agreed_op(const Response* known, std::unique_ptr<Response> made, CacheId number) const;

  bool coordinates() const { return world_.settings.rank == 0; }
  Status create_backends();
  Status start_watchdog();
  void log_backends() const;
  Status share_memory();
  Status connect_hosts();
  Incoming take_message();
  void handle(Incoming message);
  bool coordinate();
  bool wait_for_more();
  Deadline next_stall_check() const;
  void update_watchdog();
  std::chrono::seconds stall_warning() const {
    return std::chrono::seconds(agreed_settings().stall_warning_s);
  }
  std::chrono::seconds stall_limit() const {
    return std::chrono::seconds(agreed_settings().stall_limit_s);
  }
  void look_for_stalls();
  void carry_out(const std::vector<AgreedOp>& list);
  void run_step(const std::vector<const AgreedOp*>& step);
  void add_set(const Response& response, const OperationPtr& operation);
  void remove_set(const Response& response, const OperationPtr& operation);
  void finish(const OperationPtr& operation, hora_status status, std::string_view text);
  // Nulls among them are left out.
  void finish_all(std::span<const OperationPtr> operations, hora_status status,
                  std::string_view text);
  static OperationPtr take_pending(ProcessSet& set, const AgreedOp& each);
  void wait_for_messages(Deadline deadline);
  Status make_set(std::int32_t id, std::vector<std::int32_t> ranks);
  std::vector<std::int32_t> world_ranks() const;
  std::string name_rank(int rank) const;
  std::optional<std::string> stop_reason();
  const RankInfo& agreed_settings() const { return world_.rank_infos.front(); }

  // engine_steps.cpp
  struct Reduced {
    std::string name;
    std::int64_t bytes;
  };
  struct UnderWay {
    std::uint64_t number;
    ProcessSet* set;
    std::vector<OperationPtr> operations;  // null where this rank has joined
    RunningStep run;
    std::vector<Reduced> reductions;  // to be measured
  };
  void run_collective(ProcessSet& set, const std::vector<const AgreedOp*>& step);
  bool something_under_way() const { return under_way_count_ > 0; }
  bool wait_for_steps(int most);
  bool look_at_steps();
  int free_place() const;
  void end_step(int place, UnderWay& step);
  void abandon_steps();

  // engine_fast_path.cpp
  bool try_fast_path(ProcessSet& world, OperationPtr& operation);
  bool poll_fast_path();
  bool go_on_between_hosts(LeaderFastPath& fast_path);
  void call_if_late();
  void tell_posted(const LeaderFastPath& fast_path);
  void handle_posted(int rank, std::string_view bytes);
  void handle_call(std::string_view bytes);
  void note_turn(Request& shutdown) const;
  void catch_up(const Request& shutdown);
  void look_for_stopped_ranks(const FastPath& fast_path, Clock::time_point now);
  void run_on_fast_path(FastPath& fast_path, const ProcessSet& world, Operation& operation);

  // engine_negotiation.cpp
  bool take_submissions();
  void ask_rank_0(std::span<OperationPtr> operations, bool taken_before);
  void handle_requests(int rank, std::string_view bytes);
  void add_in_full(int rank, const ProcessSet& set, Request request, Clock::time_point now);
  void add_by_number(int rank, const Reference& reference, Clock::time_point now);
  void ask_in_full(std::string_view bytes);
  void take_own_column(AgreedOp& each);
  void announce(std::vector<AgreedOp>& list);
  static const Request* newly_asked(const AgreedOp& each);
  void learn(ProcessSet& set, AgreedOp& each);
  std::string encode_responses_for(int rank, const std::vector<AgreedOp>& list);
  void handle_responses(std::string_view bytes);

  // engine_tune.cpp
  void start_tuning();
  static std::vector<Reduced> reductions_of(const ProcessSet& set,
                                            const std::vector<const Response*>& responses);
  void add_change(std::vector<AgreedOp>& list);
  void change_parameters(const Response& response);

  // engine_end.cpp
  void leave(const Response& response);
  void leave_without(const Incoming& incoming);
  void handle_failure_notice(const Incoming& incoming);
  void note_evidence(const Incoming& incoming);
  void look_for_evidence(Deadline deadline);
  void data_plane_failed(const std::string& text, Origin origin = Origin::kUnknown);
  void data_plane_failed(const Error& error);
  void wait_for_failure_notice(Deadline deadline);
  void give_up(const std::string& text);
  void end_world(const std::string& text);
  void interrupt(const std::vector<int>& silent);
  void tell_of_silence(const std::vector<Watchdog::Silence>& silent) const;
  std::vector<int> silent_ranks();
  void look_for_late_ranks();
  std::string list_missing(const std::vector<int>& missing) const;
  void end_for_silence(const std::string& during, const std::vector<int>& silent);
  void fail_everything(const std::string& text);
  void leave_fast_path();

  // What this rank has in the fast path, and whether to use it.
  struct FastPathState {
    FastPathTable rows;
    OperationPtr operation;
    std::vector<std::int64_t> gathered;   // of an allgather: the rows of each rank
    std::optional<FastPathPayload> load;  // of a leader among hosts
    bool open = false;                    // all is set up; the fast path may have news
    std::uint64_t told = 0;               // the latest turn in which rank 0 was told what is here
    std::uint64_t called = 0;  // rank 0: the latest turn in which it has called the others
    Deadline call_at = Deadline::max();
    bool warned = false;  // rank 0: of a rank that does not answer
    int pause = 0;        // operations that are not to try it
    int next_pause = 1;
  };

  const World& world_;
  Observer& observer_;
  std::unique_ptr<ControlChannel> channel_;
  std::optional<OobAllgather> oob_;
  BackendPool pool_;
  std::map<std::int32_t, std::unique_ptr<ProcessSet>> sets_;
  std::optional<Coordinator> coordinator_;  // rank 0
  StallInspector stalls_;                   // coordinator
  FastPathState fast_path_;
  std::vector<std::unique_ptr<UnderWay>> under_way_;  // by place; null: free
  int under_way_count_ = 0;
  std::uint64_t steps_ = 0;  // begun
  std::string step_title_;   // of the last one
  std::atomic<std::uint64_t> fast_path_runs_{0};
  std::string why_no_fast_path_;
  std::optional<Heartbeat> signs_;  // until the watchdog has them
  std::unique_ptr<Watchdog> watchdog_;
  Parameters parameters_;                    // the same on all ranks
  std::optional<Tuning> tuning_;             // rank 0, while it searches
  std::optional<Deadline> gathering_until_;  // rank 0: what is ready waits for more
  std::atomic<Waiters*> waiters_{nullptr};
  std::deque<Incoming> inbox_;  // arrived, not yet handled
  bool unfinished_ = false;
  std::atomic<State> state_{State::kRunning};
  std::vector<char> finished_;  // coordinator, leaving: by rank
  RootCause root_cause_;        // coordinator
  int gone_count_ = 0;          // peers whose connection has ended
  std::string end_text_;        // why the world ended, once it has

  RequestQueue queue_;
  std::vector<OperationPtr> taken_;  // from it, last
  SetTable set_table_;
  std::atomic<bool> stopping_{false};
  std::mutex stop_mutex_;
  std::vector<int> silent_;  // guarded by it: they gave no sign of life during a step
  std::optional<std::string> stop_reason_;
};

}  // namespace hora::collectives
