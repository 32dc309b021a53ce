// SPDX-License-Identifier: Apache-2.0
// A host becomes a source with its agent's hello: the script that fetched the agent serves no other
// host, and an agent that says hello has been found whole.
#include "launcher/shipping/agent_delivery.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "rendezvous/os/log.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kComponent = "horarun";
// Until a host is connected to its source. Where packets are dropped, that never ends.
constexpr std::chrono::milliseconds kReachPatience{2'000};
// From there to the whole agent, 2 MB: 400 KB/s.
constexpr std::chrono::milliseconds kFetchPatience{5'000};
// A host may spend a third of its start time on others: the rest is for the launcher's own sending,
// and all that follows.
constexpr int kPartForOthers = 3;
constexpr std::chrono::seconds kLook{1};
// Without any host getting anything. A start has 30 s, unless the user says otherwise.
constexpr std::chrono::seconds kWaitPatience{10};

}  // namespace

AgentDelivery::AgentDelivery(os::EventLoop& loop, Sharing sharing,
                             std::chrono::milliseconds start_timeout, Handlers handlers)
    : loop_(loop),
      sharing_(sharing),
      start_timeout_(start_timeout),
      handlers_(std::move(handlers)),
      token_(os::random_token()) {}

AgentDelivery::~AgentDelivery() { close(); }

void AgentDelivery::close() {
  *alive_ = false;
  loop_.cancel(timer_);
  for (auto& [host, guest] : guests_) has_source(guest);
  guests_.clear();
}

bool AgentDelivery::shares(int hosts) const {
  return sharing_ == Sharing::kAlways ||
         (sharing_ == Sharing::kAuto && hosts >= kLeastSharingHosts);
}

// --- from the transports' threads ----------------------------------------------------------------

template <typename Call>
void AgentDelivery::post(Call call) {
  loop_.post([alive = alive_, call = std::move(call)]() mutable {
    if (*alive) call();
  });
}

void AgentDelivery::want(int host, const std::string& machine, Answer answer) {
  post([this, host, machine, answer = std::move(answer)]() mutable {
    on_want(host, machine, std::move(answer));
  });
}

void AgentDelivery::opened(int host, int number) {
  post([this, host, number] { on_opened(host, number); });
}

void AgentDelivery::got(int host, int number) {
  post([this, host, number] { on_got(host, number); });
}

void AgentDelivery::missed(int host, int number, const std::string& reason) {
  post([this, host, number, reason] { on_missed(host, number, reason); });
}

// --- a host that lacks the agent -----------------------------------------------------------------

// A plan for each kind of processor, as a host can serve none but its own agent.
SharePlan& AgentDelivery::plan_of(const std::string& machine) {
  return plans_.try_emplace(machine, given_up_ ? Sharing::kNever : sharing_).first->second;
}

// A host that asks again could not use what it got: its disk may be full, or its copy was damaged.
// It has lost time already.
void AgentDelivery::on_want(int host, const std::string& machine, Answer answer) {
  const auto found = guests_.find(host);
  if (found != guests_.end()) {
    Guest& guest = found->second;
    has_source(guest);
    answer(std::nullopt);
    return carry_out(plan_of(guest.machine).unable(host));
  }
  Guest& guest = guests_[host];
  guest.machine = machine;
  guest.answer = std::move(answer);
  guest.limit = loop_.call_after(start_timeout_ / kPartForOthers, [this, host] { on_late(host); });
  moved_at_ = Clock::now();
  SharePlan& plan = plan_of(machine);
  carry_out(plan.want(host, handlers_.hosts()));
  // Not known yet.
  if (guest.answer && guest.number == 0) guest.answer(AgentOffer{});
  watch_waiting();
}

void AgentDelivery::carry_out(const SharePlan::Steps& steps) {
  for (const SharePlan::Step& step : steps) {
    if (step.sources.empty()) {
      send(step.host);
    } else {
      Guest& guest = guests_[step.host];
      guest.sources = step.sources;
      offer(step.host);
    }
  }
}

void AgentDelivery::send(int host) {
  Guest& guest = guests_[host];
  const Answer answer = guest.answer;
  has_source(guest);
  if (answer) answer(std::nullopt);
}

// A source that was lost meanwhile has no addresses: the next one, or the plan, knows better.
void AgentDelivery::offer(int host) {
  Guest& guest = guests_[host];
  while (!guest.sources.empty()) {
    const int source = guest.sources.front();
    const auto serving = guests_.find(source);
    if (serving != guests_.end() && serving->second.port > 0) {
      AgentOffer offer{++last_number_, handlers_.addresses(source), serving->second.port, token_};
      if (!offer.addresses.empty()) {
        guest.number = offer.number;
        set_deadline(guest, host, std::min(kReachPatience, start_timeout_ / (2 * kPartForOthers)),
                     "it could not reach it in time");
        return guest.answer(std::move(offer));
      }
      plan_of(guest.machine).refuse(source);
    }
    guest.sources.erase(guest.sources.begin());
  }
  guest.number = 0;
  carry_out(plan_of(guest.machine).failed(host));
  look_whether_given_up();
}

void AgentDelivery::set_deadline(Guest& guest, int host, std::chrono::milliseconds patience,
                                 const std::string& why) {
  loop_.cancel(guest.deadline);
  guest.deadline = loop_.call_after(
      patience, [this, host, number = guest.number, why] { on_missed(host, number, why); });
}

void AgentDelivery::end_offer(Guest& guest) {
  loop_.cancel(std::exchange(guest.deadline, 0));
  guest.sources.clear();
  guest.number = 0;
}

// It has the agent, or is being sent it.
void AgentDelivery::has_source(Guest& guest) {
  end_offer(guest);
  loop_.cancel(std::exchange(guest.limit, 0));
  guest.answer = nullptr;
}

// None, if the host has another offer by now: it reports each, and each may be overtaken.
AgentDelivery::Guest* AgentDelivery::guest_of(int host, int number) {
  const auto found = guests_.find(host);
  // A message about a previous offer crossed with the next one.
  return found != guests_.end() && found->second.number == number ? &found->second : nullptr;
}

// It is connected, so now the bytes have their own deadline.
void AgentDelivery::on_opened(int host, int number) {
  if (Guest* guest = guest_of(host, number)) {
    set_deadline(*guest, host, kFetchPatience, "it sent too slowly");
  }
}

// It keeps its place at the source until its agent greets, which is soon.
void AgentDelivery::on_got(int host, int number) {
  Guest* guest = guest_of(host, number);
  if (guest == nullptr) return;
  moved_at_ = Clock::now();
  has_source(*guest);
}

// However many others there are to try: it must be sent it while there is time for its start.
void AgentDelivery::on_late(int host) {
  const auto found = guests_.find(host);
  if (found == guests_.end() || !found->second.answer) return;
  end_offer(found->second);
  carry_out(plan_of(found->second.machine).unable(host));
}

// Reported once: further ones look the same.
void AgentDelivery::on_missed(int host, int number, const std::string& reason) {
  Guest* guest = guest_of(host, number);
  if (number == 0) {
    os::log_debug(kComponent, handlers_.name(host) + " cannot fetch the agent: " + reason);
    return on_late(host);
  }
  if (guest == nullptr) return;
  moved_at_ = Clock::now();
  const int source = guest->sources.front();
  const std::string text = handlers_.name(host) + " could not fetch the agent from " +
                           handlers_.name(source) + ": " + reason;
  if (std::exchange(told_, true)) {
    os::log_debug(kComponent, text);
  } else {
    os::log_info(kComponent, text + "; what no host can give, the launcher sends");
  }
  loop_.cancel(std::exchange(guest->deadline, 0));
  plan_of(guest->machine).refuse(source);
  guest->sources.erase(guest->sources.begin());
  offer(host);
}

// --- a host that has it --------------------------------------------------------------------------

// A host serves only as long as it is of use: while others wait, or may still ask.
void AgentDelivery::greeted(int host) {
  const auto found = guests_.find(host);
  if (found != guests_.end()) {
    Guest& guest = found->second;
    has_source(guest);
    moved_at_ = Clock::now();
    SharePlan& plan = plan_of(guest.machine);
    if (plan.shares() && (plan.anybody_waits() || handlers_.more_may_come())) {
      guest.told_to_serve = true;
      handlers_.serve(host, token_);
    } else {
      carry_out(plan.ready(host, /*serves=*/false));
    }
  }
  settle();
}

void AgentDelivery::serves(int host, int port) {
  const auto found = guests_.find(host);
  if (found == guests_.end() || !found->second.told_to_serve) return;
  found->second.port = port;
  carry_out(plan_of(found->second.machine).ready(host, port > 0));
}

// Hosts that fetch from it notice it themselves, and report it.
void AgentDelivery::lost(int host) {
  const auto found = guests_.find(host);
  if (found != guests_.end()) {
    const std::string machine = found->second.machine;
    has_source(found->second);
    guests_.erase(found);
    carry_out(plan_of(machine).lost(host));
  }
  settle();
}

// When all hosts have said hello, none lacks it.
void AgentDelivery::settle() {
  if (guests_.empty() || handlers_.more_may_come()) return;
  loop_.cancel(std::exchange(timer_, 0));
  for (auto& [host, guest] : std::exchange(guests_, {})) {
    has_source(guest);
    if (guest.told_to_serve) handlers_.serve(host, "");
  }
  // Hosts that join the job later begin with the launcher again.
  plans_.clear();
}

// Hosts wait for those that are still being sent it. Where that takes for ever (a host that reads
// nothing), waiting on would cost the job its start.
void AgentDelivery::watch_waiting() {
  if (timer_ != 0) return;
  timer_ = loop_.call_after(kLook, [this] {
    timer_ = 0;
    const bool late = Clock::now() - moved_at_ > kWaitPatience;
    bool anybody_waits = false;
    for (auto& [machine, plan] : plans_) {
      if (late && plan.anybody_waits()) carry_out(plan.give_up());
      anybody_waits = anybody_waits || plan.anybody_waits();
    }
    if (anybody_waits) watch_waiting();
  });
}

// The parts of the runtime would meet the same firewall.
void AgentDelivery::look_whether_given_up() {
  const bool any = std::any_of(plans_.begin(), plans_.end(),
                               [](const auto& each) { return each.second.has_given_up(); });
  if (any && !std::exchange(given_up_, true)) handlers_.on_given_up();
}

}  // namespace hora::launcher
