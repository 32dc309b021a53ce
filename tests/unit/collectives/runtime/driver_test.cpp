// SPDX-License-Identifier: Apache-2.0
// driver.cpp over a scheduler that tries the orders in which its threads can run (driver_model/):
// no submission may stay in the queue while all threads sleep.
#include "collectives/runtime/driver.cpp"  // with the headers of driver_model/

#include "tests/support/catch.h"

namespace hora::collectives {

namespace model {

namespace {

constexpr std::size_t kStackBytes = 64 << 10;
// Sleeps of at least this length only bound the cost of a lost wake-up.
constexpr std::chrono::milliseconds kRescue{900};
constexpr std::size_t kMostTurns = 20'000;

}  // namespace

void Scheduler::enter() {
  scheduler->running_->body();
  scheduler->running_->ended = true;
  scheduler->leave();
}

bool Scheduler::run(const std::function<bool()>& finished, const std::function<void()>& end) {
  scheduler = this;
  static std::vector<std::unique_ptr<char[]>> stacks;  // of all runs
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (i == stacks.size()) stacks.emplace_back(new char[kStackBytes]);
    ucontext_t& begin = threads_[i]->begin;
    getcontext(&begin);
    begin.uc_stack.ss_sp = stacks[i].get();
    begin.uc_stack.ss_size = kStackBytes;
    makecontext(&begin, &Scheduler::enter, 0);
  }
  const bool good = run_until(finished);
  end();
  ending_ = true;
  switches_left_ = 0;
  turns_ = 0;
  return run_until([this] {
           return std::all_of(threads_.begin(), threads_.end(),
                              [](const auto& thread) { return thread->ended; });
         }) &&
         good;
}

bool Scheduler::run_until(const std::function<bool()>& finished) {
  while (!finished()) {
    std::vector<Thread*> ready;
    for (const auto& thread : threads_) {
      if (is_ready(*thread)) ready.push_back(thread.get());
    }
    if (ready.empty()) {
      Thread* first = nullptr;
      for (const auto& thread : threads_) {
        if (thread->ended || thread->deadline == Deadline::max()) continue;
        if (!ending_ && thread->deadline - now >= kRescue) continue;
        if (first == nullptr || thread->deadline < first->deadline) first = thread.get();
      }
      if (first == nullptr) return false;
      now = std::max(now, first->deadline);
      ready.push_back(first);
    }
    if (++turns_ > kMostTurns) return false;
    running_ = next_of(std::move(ready));
    running_->ready = nullptr;
    if (_setjmp(main_) == 0) {
      if (running_->begun) _longjmp(running_->place, 1);
      running_->begun = true;
      setcontext(&running_->begin);
    }
  }
  return true;
}

Thread* Scheduler::next_of(std::vector<Thread*> ready) {
  const auto last = std::find(ready.begin(), ready.end(), running_);
  if (std::exchange(yields_, false) && last != ready.end()) {
    // In turns: a loop that polls must not keep the others from what it awaits.
    return last + 1 == ready.end() ? ready.front() : *(last + 1);
  }
  if (last != ready.end()) {
    if (switches_left_ == 0) return running_;
    std::iter_swap(ready.begin(), last);
  }
  Thread* const next = ready[static_cast<std::size_t>(choose(static_cast<int>(ready.size())))];
  if (last != ready.end() && next != running_) --switches_left_;
  return next;
}

void Scheduler::leave() {
  Thread* const thread = running_;
  if (thread->ended || thread->ready) drain(*thread);
  if (_setjmp(thread->place) == 0) _longjmp(main_, 1);
}

// Which of the options: 0 first, and the others in later runs.
int Scheduler::choose(int options) {
  if (options == 1 || ending_) return 0;
  if (next_choice_ == choices_.size()) choices_.push_back({0, options});
  return choices_[next_choice_++].taken;
}

void Scheduler::turn() {
  if (switches_left_ > 0) leave();
}

void Scheduler::yield() {
  flush();
  yields_ = true;
  leave();
}

void Scheduler::wait(std::function<bool()> ready, Deadline deadline) {
  running_->ready = std::move(ready);
  running_->deadline = deadline;
  leave();
}

void Scheduler::store(void* place, std::uint64_t value, std::function<void()> apply, bool at_once) {
  running_->buffer.push_back({place, value, std::move(apply)});
  if (at_once || switches_left_ == 0 || choose(2) == 0) return flush();
  --switches_left_;
}

void Scheduler::flush() { drain(*running_); }

void Scheduler::drain(Thread& thread) {
  for (const Store& each : thread.buffer) each.apply();
  thread.buffer.clear();
}

const std::uint64_t* Scheduler::own(const void* place) const {
  const auto& buffer = running_->buffer;
  const auto found = std::find_if(buffer.rbegin(), buffer.rend(),
                                  [place](const Store& each) { return each.place == place; });
  return found == buffer.rend() ? nullptr : &found->value;
}

}  // namespace model

namespace {

// What a caller does with an operation.
enum class Call { kSubmitAndWait, kSubmitThenWait, kSubmitThenPoll, kSubmit };

struct Step {
  Call call;
  bool needs_peer;
};
using Program = std::vector<Step>;

struct World {
  World(const std::vector<Program>& programs, std::vector<model::Scheduler::Choice> choices,
        int most_switches, bool fences)
      : scheduler(std::move(choices), most_switches, fences) {
    scheduler.add("the runtime's thread", [this] { driver.run(); });
    for (const Program& program : programs) {
      scheduler.add("caller", [this, &program] {
        for (const Step& step : program) call(step);
        --callers;
      });
      callers += 1;
    }
    scheduler.add("peer", [this] {
      for (int answered = 0; !engine.ended();) {
        model::scheduler->wait([&] { return engine.asked.shown() > answered || engine.ended(); });
        if (engine.ended()) return;
        ++answered;
        engine.waiters()->answers.fetch_add(1);
        engine.waiters()->call();
      }
    });
  }

  void call(const Step& step) {
    Operation& operation = operations.emplace_back();
    operation.needs_peer = step.needs_peer;
    const Then then = step.call == Call::kSubmitAndWait ? Then::kWaits : Then::kGoesOn;
    const auto [first, alone] = engine.queue().push(operation);
    driver.submitted(first, alone, then);
    if (step.call == Call::kSubmit) return;
    if (step.call == Call::kSubmitThenPoll) {
      while (!driver.wait_for(operation, kNoWait, then)) model::scheduler->yield();
      return;
    }
    driver.wait_for(operation, Deadline::max(), then);
  }

  bool run() {
    const auto finished = [this] {
      return callers == 0 && std::all_of(operations.begin(), operations.end(),
                                         [](const Operation& each) { return each.is_done(); });
    };
    return scheduler.run(finished, [this] { engine.has_ended = true; });
  }

  model::Scheduler scheduler;
  Engine engine;
  Driver driver{engine};
  std::deque<Operation> operations;
  int callers = 0;
};

struct Search {
  std::size_t runs = 0;
  std::size_t lost = 0;  // runs in which all threads slept
};

// All orders with at most that number of switches; ends at the first one that loses a wake-up.
Search search(const std::vector<Program>& programs, int most_switches, bool fences = true) {
  Search result;
  std::vector<model::Scheduler::Choice> choices;
  while (result.lost == 0) {
    World world(programs, choices, most_switches, fences);
    if (!world.run()) ++result.lost;
    ++result.runs;
    choices = world.scheduler.choices();
    while (!choices.empty() && choices.back().taken + 1 == choices.back().options)
      choices.pop_back();
    if (choices.empty()) break;
    ++choices.back().taken;
  }
  return result;
}

const Program kWaiter{{Call::kSubmitThenWait, false}, {Call::kSubmitThenWait, false}};
const Program kWaiterForPeer{{Call::kSubmitThenWait, true}, {Call::kSubmit, false}};
const Program kBlocking{{Call::kSubmitAndWait, true}, {Call::kSubmitAndWait, false}};
const Program kPoller{{Call::kSubmitThenWait, false}, {Call::kSubmitThenPoll, true}};
const Program kLeaver{{Call::kSubmit, true}, {Call::kSubmit, false}};

}  // namespace

TEST_CASE("driver model: no submission is left while all threads sleep") {
  const char* const more = std::getenv("HORA_MORE_SWITCHES");
  const auto [programs, switches] = GENERATE(
      std::pair{std::vector<Program>{kWaiter}, 2},
      std::pair{std::vector<Program>{kWaiterForPeer}, 2},
      std::pair{std::vector<Program>{kPoller}, 2}, std::pair{std::vector<Program>{kLeaver}, 2},
      std::pair{std::vector<Program>{kWaiter, kBlocking}, 1},
      std::pair{std::vector<Program>{kWaiterForPeer, kLeaver}, 1},
      std::pair{std::vector<Program>{kBlocking, kPoller}, 1});
  const Search found = search(programs, switches + (more != nullptr ? std::atoi(more) : 0));
  CAPTURE(found.runs);
  CHECK(found.lost == 0);
  CHECK(found.runs > 10'000);
}

TEST_CASE("driver model: it finds the wake-ups that fences save") {
  for (const Program& program : {kWaiter, kWaiterForPeer, kBlocking, kPoller, kLeaver}) {
    CHECK(search({program}, 2, false).lost == 1);
  }
}

}  // namespace hora::collectives
