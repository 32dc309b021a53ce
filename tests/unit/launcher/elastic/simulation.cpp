// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/launcher/elastic/simulation.h"

#include <algorithm>
#include <map>
#include <queue>
#include <random>
#include <set>

#include "launcher/elastic/elastic_state.h"

namespace hora::launcher::elastic {

namespace {

using namespace std::chrono_literals;

constexpr auto kElasticTimeout = 60'000ms;
constexpr auto kFaultsUntil = 120'000ms;  // the world is kind after this
constexpr auto kTrainingTime = 30'000ms;  // that an epoch needs without a disturbance
constexpr auto kMustEndBy = kFaultsUntil + 12 * kElasticTimeout;

class Simulation {
 public:
  Simulation(std::uint64_t seed, bool keep_story)
      : random_(seed),
        keep_story_(keep_story),
        options_(make_options()),
        state_(
            options_, [this] { return fraction(); }, at(now_)) {}

  SimulationResult run() {
    const int hosts = between(1, 5);
    for (int i = 0; i < hosts; ++i) {
      hosts_["h" + std::to_string(i)] = {between(1, 3), chance(80), true};
    }
    result_.story = "np " + std::to_string(options_.np) + " min " +
                    std::to_string(options_.min_np) + " max " +
                    std::to_string(options_.max_np.value_or(0)) + "\n";
    discover();
    plan_faults();
    while (result_.violation.empty() && !state_.over()) {
      const auto deadline = state_.next_deadline();
      const bool has_event = !queue_.empty();
      if (!deadline && !has_event) {
        violate("nothing will ever happen");
        break;
      }
      if (deadline && (!has_event || *deadline < at(queue_.top().when))) {
        now_ = std::max(now_, std::chrono::ceil<Milliseconds>(deadline->time_since_epoch()));
        feed(Tick{});
        const auto next = state_.next_deadline();
        require(!next || *next > at(now_), "a deadline that stays over: the supervisor would spin");
        continue;
      }
      const Entry next = queue_.top();
      queue_.pop();
      now_ = std::max(now_, next.when);
      calls_[next.call]();
      calls_.erase(next.call);
      if (now_ > kMustEndBy) violate("neither progress nor end");
    }
    result_.succeeded = state_.over() && !state_.cause();
    if (state_.cause()) result_.end = state_.cause()->failure.code;
    return result_;
  }

 private:
  struct World {
    int slots;
    bool listed;
    bool up;
  };
  enum class Doing { kStarting, kTraining, kBroken, kAsking, kHanging, kEnded };
  struct Process {
    IncarnationId incarnation = -1;
    int local_rank = 0;
    Doing doing = Doing::kStarting;
    int epoch = 0;
    int rank = -1;
    bool has_state = false;
    bool sent_away = false;
    int asked_after = 0;  // the epoch that it has asked to leave
  };
  struct Entry {
    Milliseconds when;
    int call;
    bool operator<(const Entry& other) const {
      return std::tie(when, call) > std::tie(other.when, other.call);
    }
  };

  static TimePoint at(Milliseconds time) { return TimePoint(time); }
  int between(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random_); }
  bool chance(int percent) { return between(1, 100) <= percent; }
  double fraction() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  bool faulty() const { return now_ < kFaultsUntil; }

  ElasticOptions make_options() {
    ElasticOptions made;
    made.min_np = between(1, 3);
    made.np = made.min_np + between(0, 2);
    if (chance(50)) made.max_np = made.np + between(0, 4);
    if (chance(20)) made.reset_limit = between(0, 6);
    if (chance(70)) made.cooldown = CooldownRange{1s, std::chrono::seconds(between(1, 20))};
    made.elastic_timeout = kElasticTimeout;
    made.start_timeout = 10s;
    return made;
  }

  void later(int lo_ms, int hi_ms, std::function<void()> call) {
    queue_.push({now_ + Milliseconds(between(lo_ms, hi_ms)), next_call_});
    calls_[next_call_++] = std::move(call);
  }

  void log(const std::string& text) {
    if (keep_story_) result_.story += std::to_string(now_.count()) + " " + text + "\n";
  }
  void violate(const std::string& what) {
    if (result_.violation.empty()) result_.violation = what + " at " + std::to_string(now_.count());
  }
  void require(bool holds, const std::string& what) {
    if (!holds) violate(what);
  }

  // --- the world ---------------------------------------------------------------------------------

  void discover() {
    if (faulty() && chance(10)) {
      feed(DiscoveryFailed{"exit code 1"});
    } else {
      std::vector<Host> listed;
      for (const auto& [name, host] : hosts_) {
        if (host.listed) listed.push_back({name, "", host.slots});
      }
      feed(HostsListed{std::move(listed)});
    }
    if (!state_.over()) later(1000, 1500, [this] { discover(); });
  }

  void plan_faults() {
    const int count = between(0, 12);
    for (int i = 0; i < count; ++i) {
      later(0, static_cast<int>(kFaultsUntil.count()) - 1, [this] { fault(); });
    }
    // In the end everything works, and hanging ranks are killed (a rank that hangs while nothing
    // else happens is not the launcher's to judge).
    queue_.push({kFaultsUntil, next_call_});
    calls_[next_call_++] = [this] {
      for (auto& [name, host] : hosts_) host.up = host.listed = true;
      std::vector<WorkerId> hanging;
      for (const auto& [id, process] : processes_) {
        if (process.doing == Doing::kHanging) hanging.push_back(id);
      }
      for (const WorkerId id : hanging) end(id, 137);
    };
  }

  void fault() {
    ++result_.faults;
    auto victim = hosts_.begin();
    std::advance(victim, between(0, static_cast<int>(hosts_.size()) - 1));
    auto& [name, host] = *victim;
    switch (between(0, 5)) {
      case 0:
        host.listed = !host.listed;
        log(name + (host.listed ? " listed" : " no longer listed"));
        break;
      case 1:
        host.slots = between(1, 3);
        log(name + " has " + std::to_string(host.slots) + " slots");
        break;
      case 2:
        host.up = !host.up;
        log(name + (host.up ? " up" : " down"));
        if (!host.up) crash(name);
        break;
      case 3:
        hosts_["n" + std::to_string(hosts_.size())] = {between(1, 3), true, true};
        break;
      case 4:
        kill_some([this](WorkerId id) { end(id, 137); });
        break;
      default:
        kill_some([this](WorkerId id) {
          log("worker " + std::to_string(id) + " hangs");
          processes_[id].doing = Doing::kHanging;
        });
        break;
    }
  }

  void kill_some(const std::function<void(WorkerId)>& how) {
    std::vector<WorkerId> living;
    for (const auto& [id, process] : processes_) {
      if (process.doing != Doing::kEnded) living.push_back(id);
    }
    if (!living.empty())
      how(living[static_cast<std::size_t>(between(0, static_cast<int>(living.size()) - 1))]);
  }

  // The power goes: processes are gone, the launcher notices after the lease, if at all.
  void crash(const std::string& name) {
    for (IncarnationId id = 0; id < state_.incarnation_count(); ++id) {
      if (state_.host_of(id).name != name || !agents_.erase(id)) continue;
      for (auto& [worker, process] : processes_) {
        if (process.incarnation == id) process.doing = Doing::kEnded;
      }
      peers_notice();
      later(5'000, 10'000, [this, id] { lose(id, "E_HOST_LOST"); });
    }
  }

  void lose(IncarnationId id, const std::string& code) {
    log("agent " + std::to_string(id) + " lost: " + code);
    feed(AgentGone{id, Failure{code, "gone", ""}, std::chrono::nanoseconds(now_)});
  }

  // --- workers -----------------------------------------------------------------------------------

  void start(WorkerId id, int rank) {
    Process& process = processes_[id];
    process.incarnation = state_.incarnation_of(id);
    process.local_rank = state_.local_rank_of(id);
    process.epoch = state_.epoch();
    process.rank = rank;
    process.has_state = state_.epoch() == 1;
    process.doing = Doing::kStarting;
    later(100, 3'000, [this, id] {
      if (faulty() && chance(3)) return end(id, 1);  // it cannot import what it needs
      go_on(id);
    });
  }

  // A rank is in its epoch and trains, if the others are.
  void go_on(WorkerId id) {
    Process& process = processes_[id];
    if (process.doing == Doing::kEnded || process.doing == Doing::kHanging) return;
    process.doing = Doing::kTraining;
    const int epoch = process.epoch;
    later(200, 2'000, [this, id, epoch] {  // then it has synced
      Process& synced = processes_[id];
      if (synced.doing == Doing::kTraining && synced.epoch == epoch && whole(epoch)) {
        synced.has_state = true;
      }
    });
    later(static_cast<int>(kTrainingTime.count()), static_cast<int>(kTrainingTime.count()) + 500,
          [this, id, epoch] {
            Process& done = processes_[id];
            if (done.doing == Doing::kTraining && done.epoch == epoch && whole(epoch)) end(id, 0);
          });
    if (!whole(epoch)) notice(id);
  }

  bool whole(int epoch) const {
    const auto members = members_.find(epoch);
    if (epoch != state_.epoch() || members == members_.end()) return false;
    return std::all_of(members->second.begin(), members->second.end(), [&](WorkerId id) {
      const Process& process = processes_.at(id);
      return succeeded_.count(id) > 0 ||
             (process.epoch == epoch && process.doing != Doing::kEnded &&
              process.doing != Doing::kBroken && process.doing != Doing::kAsking);
    });
  }

  // A collective fails, or hosts have changed: the rank leaves its epoch and asks for another.
  void notice(WorkerId id) {
    Process& process = processes_[id];
    if (process.doing != Doing::kTraining) return;
    process.doing = Doing::kBroken;
    const int epoch = process.epoch;
    later(10, 2'000, [this, id, epoch] {
      Process& asking = processes_[id];
      if (asking.doing != Doing::kBroken || asking.epoch != epoch) return;
      asking.doing = Doing::kAsking;
      asking.asked_after = epoch;
      log("worker " + std::to_string(id) + " asks");
      feed(WorkerAsked{id, asking.has_state});
    });
    peers_notice();
  }

  void peers_notice() {
    for (auto& [id, process] : processes_) {
      if (process.doing != Doing::kTraining) continue;
      const WorkerId peer = id;
      later(1, 500, [this, peer] {
        if (processes_[peer].doing == Doing::kTraining && !whole(processes_[peer].epoch))
          notice(peer);
      });
    }
  }

  void end(WorkerId id, int code) {
    Process& process = processes_[id];
    if (process.doing == Doing::kEnded) return;
    process.doing = Doing::kEnded;
    log("worker " + std::to_string(id) + " ends with " + std::to_string(code));
    if (code == 0) succeeded_.insert(id);
    if (code != 0) peers_notice();
    if (agents_.count(process.incarnation) == 0) return;  // there is no one to report to
    RankExit exit;
    exit.rank = id;
    exit.exit_code = code;
    const IncarnationId incarnation = process.incarnation;
    later(1, 50, [this, id, exit] { feed(WorkerEnded{id, exit, std::chrono::nanoseconds(now_)}); });
    const bool last = std::none_of(processes_.begin(), processes_.end(), [&](const auto& each) {
      return each.second.incarnation == incarnation && each.second.doing != Doing::kEnded;
    });
    if (!last) return;
    later(51, 100, [this, incarnation] {
      if (agents_.erase(incarnation)) feed(AgentGone{incarnation, std::nullopt});
    });
  }

  // --- what the state machine wants --------------------------------------------------------------

  void feed(const ElasticEvent& event) {
    if (state_.over()) return;
    const std::vector<WorkerId> before = members_[state_.epoch()];
    for (const ElasticAction& action : state_.step(event, at(now_))) {
      require(!ended_, "an action behind the end");
      std::visit([&](const auto& wanted) { apply(wanted, before); }, action);
    }
  }

  using Members = std::vector<WorkerId>;

  void apply(const Connect& wanted, const Members&) {
    const IncarnationId id = wanted.incarnation;
    for (const auto& [incarnation, host] : connecting_) {
      require(host != wanted.host.name, "two connections at a time to " + host);
    }
    connecting_[id] = wanted.host.name;
    log("connect " + wanted.host.name + " as " + std::to_string(id));
    const bool answers = !(faulty() && chance(5));  // else the start timeout decides
    if (!answers) return;
    later(20, 3'000, [this, id, name = wanted.host.name] {
      if (connecting_.erase(id) == 0) return;
      if (!hosts_[name].up) return lose(id, "E_CONNECT");
      agents_.insert(id);
      feed(AgentGreeted{id});
    });
  }

  void apply(const PrepareEpoch&, const Members&) {
    check_plan();
    for (const IncarnationId id : state_.new_incarnations()) {
      require(orders_.emplace(id, state_.seats()).second, "a second order for one agent");
      if (faulty() && chance(2)) continue;  // never ready
      later(5, 500, [this, id] {
        if (agents_.count(id) == 0) return;
        if (faulty() && chance(3)) {
          agents_.erase(id);
          return lose(id, "E_CWD");
        }
        feed(AgentReady{id});
      });
    }
  }

  void apply(const BeginEpoch&, const Members& before) {
    ++result_.epochs;
    check_plan();
    log("epoch " + std::to_string(state_.epoch()) + ": " + describe_plan(state_.plan()));
    for (const WorkerId id : before) {
      const Process& process = processes_.at(id);
      const bool fenced = process.doing == Doing::kEnded ||
                          agents_.count(process.incarnation) == 0 ||
                          ending_.count(process.incarnation) > 0;
      require(process.asked_after == state_.epoch() - 1 || fenced,
              "worker " + std::to_string(id) + " neither asked nor is it being ended");
    }
    check_order();
    std::vector<WorkerId>& members = members_[state_.epoch()];
    int rank = 0;
    for (const ElasticState::Seat& seat : state_.seats()) {
      members.push_back(seat.worker);
      if (seat.is_new) {
        require(orders_[seat.incarnation] == state_.seats(),
                "a rank that is in no order, or in another one");
        start(seat.worker, rank);
      } else {
        Process& process = processes_[seat.worker];
        process.epoch = state_.epoch();
        process.rank = rank;
        if (process.doing == Doing::kAsking) process.doing = Doing::kStarting;
        later(10, 500, [this, id = seat.worker] { go_on(id); });
      }
      ++rank;
    }
    require(processes_.at(members.front()).has_state, "rank 0 does not know the state");
    for (const WorkerId id : state_.dismissed()) {
      require(ending_.count(processes_[id].incarnation) == 0,
              "a worker that is being ended is dismissed");
      processes_[id].sent_away = true;
      if (chance(80)) later(10, 5'000, [this, id] { end(id, 0); });
    }
    // Two processes of one place, or of one rank, must never be in one epoch.
    std::set<std::pair<std::string, int>> places;
    for (const auto& [id, process] : processes_) {
      if (process.doing == Doing::kEnded || process.sent_away || process.epoch != state_.epoch())
        continue;
      require(places.emplace(state_.host_of(process.incarnation).name, process.local_rank).second,
              "two processes for one slot");
    }
  }

  void check_plan() {
    const int size = state_.plan().world_size;
    require(size == static_cast<int>(state_.seats().size()), "seats differ from the plan");
    require(size >= (result_.epochs <= 1 && state_.epoch() <= 1 ? options_.np : options_.min_np) ||
                size >= options_.min_np,
            "fewer than --min-np");
    require(!options_.max_np || size <= *options_.max_np, "more than --max-np");
    std::set<WorkerId> seen;
    for (const ElasticState::Seat& seat : state_.seats()) {
      require(seen.insert(seat.worker).second, "one worker on two seats");
    }
    int resets = state_.epoch() - 1;
    require(!options_.reset_limit || resets <= *options_.reset_limit, "beyond --reset-limit");
  }

  // Survivors keep their order, but for a rank 0 that had to be replaced by one that knows the
  // state.
  void check_order() {
    int last = -1;
    bool first = true;
    for (const ElasticState::Seat& seat : state_.seats()) {
      if (seat.is_new) continue;
      const int before = processes_.at(seat.worker).rank;
      const bool moved_up = first && !members_[state_.epoch() - 1].empty();
      if (!moved_up)
        require(before > last || state_.host_of(seat.incarnation).name != last_host_, "order lost");
      last = before;
      last_host_ = state_.host_of(seat.incarnation).name;
      first = false;
    }
  }

  void apply(const EndWorker& wanted, const Members&) {
    later(1, 500, [this, id = wanted.worker] { end(id, 143); });
  }

  void apply(const EndIncarnation& wanted, const Members&) {
    connecting_.erase(wanted.incarnation);
    ending_.insert(wanted.incarnation);
    later(1, 6'000, [this, id = wanted.incarnation] {
      if (!agents_.erase(id)) return;
      for (auto& [worker, process] : processes_) {
        if (process.incarnation == id) process.doing = Doing::kEnded;
      }
      peers_notice();
      feed(AgentGone{id, std::nullopt});
    });
  }

  void apply(const NotifyWorkers& wanted, const Members&) {
    require(wanted.change != PlanChange{}, "a notification without a change");
    log("notify");
    const int epoch = state_.epoch();
    later(10, 1'000, [this, epoch] {
      if (epoch != state_.epoch() || members_[epoch].empty()) return;
      if (processes_[members_[epoch].front()].doing != Doing::kTraining) return;
      for (const WorkerId id : members_[epoch]) notice(id);
    });
  }

  void apply(const BreakEpoch&, const Members&) {}
  void apply(const Message& message, const Members&) { log("# " + message.text); }
  void apply(const EndJob&, const Members&) {
    require(!ended_, "ended twice");
    ended_ = true;
  }

  std::mt19937_64 random_;
  bool keep_story_;
  ElasticOptions options_;
  Milliseconds now_{0};
  ElasticState state_;
  std::priority_queue<Entry> queue_;
  std::map<int, std::function<void()>> calls_;
  int next_call_ = 0;
  std::map<std::string, World> hosts_;
  std::set<IncarnationId> agents_;  // that live
  std::map<IncarnationId, std::string> connecting_;
  std::set<IncarnationId> ending_;
  std::map<IncarnationId, std::vector<ElasticState::Seat>>
      orders_;  // what was planned when it was given
  std::map<WorkerId, Process> processes_;
  std::map<int, std::vector<WorkerId>> members_;  // by epoch
  std::set<WorkerId> succeeded_;
  std::string last_host_;
  bool ended_ = false;
  SimulationResult result_;
};

}  // namespace

SimulationResult simulate(std::uint64_t seed, bool keep_story) {
  return Simulation(seed, keep_story).run();
}

}  // namespace hora::launcher::elastic
