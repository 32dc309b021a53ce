// SPDX-License-Identifier: Apache-2.0
// The launcher's own sending is complete when it is queued, because the order follows in the same
// stream. A fetch is complete when the agent reports it, because it comes by another way.
#include "launcher/shipping/part_delivery.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "launcher/parts/hashes.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kPartComponent = "horarun";
// From here on hosts forget each part as soon as all have it: a message for each host and part.
constexpr std::size_t kMuchKeptBytes = kMostKeptBytes / 8;
constexpr std::chrono::seconds kPartLook{1};
// Without any host getting anything. A start has 30 s, unless the user says otherwise.
constexpr std::chrono::seconds kPartWaitTime{10};

// A source that serves others as well, over a slow network, still counts as alive.
int timeout_ms(std::size_t bytes) {
  constexpr std::size_t kLeastBytesPerMs = 512;
  return static_cast<int>(3'000 + bytes / kLeastBytesPerMs);
}

}  // namespace

PartDelivery::PartDelivery(os::EventLoop& loop, Sharing sharing, Handlers handlers)
    : loop_(loop), sharing_(sharing), handlers_(std::move(handlers)), key_(os::random_token()) {}

PartDelivery::~PartDelivery() { loop_.cancel(timer_); }

void PartDelivery::want(int host, const Frames& parts, int hosts) {
  // All of them first: a host is complete when none is left.
  Pending& pending = pending_[host];
  std::vector<Part*> wanted;
  for (const auto& [hash, frames] : parts) {
    auto found = parts_.find(hash);
    if (found == parts_.end()) {
      // Agents keep what they share in memory.
      const bool large = shared_bytes_ + frames->size() > kMostKeptBytes;
      found = parts_.try_emplace(hash, large ? Sharing::kNever : sharing_).first;
    }
    Part& part = found->second;
    if (!part.frames) unsettled_bytes_ += frames->size();
    part.frames = frames;
    part.bytes = frames->size();
    pending.parts.insert(&part);
    wanted.push_back(&part);
  }
  moved_at_ = Clock::now();
  for (Part* part : wanted) carry_out(*part, part->plan.want(host, hosts));
  settle();
}

// Sending may lead to further steps, for other hosts: a plan names each host once.
void PartDelivery::carry_out(Part& part, const SharePlan::Steps& steps) {
  for (const SharePlan::Step& step : steps) {
    if (step.sources.empty()) {
      send(part, step.host);
    } else {
      fetch(part, step.host, step.sources);
    }
  }
}

// The hash is made when the part is first shared: jobs on a few hosts do without it.
void PartDelivery::send(Part& part, int host) {
  const bool shares = part.plan.shares();
  if (shares) {
    if (part.id.empty()) part.id = sha256_hex(*part.frames);
    handlers_.keep(host, {part.id, key_});
    hold(part, host);
  }
  handlers_.send(host, part.frames);
  pending_[host].supply.sent_bytes += part.frames->size();
  // An agent that keeps nothing reports nothing.
  if (!shares) carry_out(part, part.plan.ready(host, /*serves=*/false));
  has_come(part, host);
}

// The port is the source's own report; the addresses are those of its Hello.
void PartDelivery::fetch(Part& part, int host, const std::vector<int>& sources) {
  FetchDelivery order;
  order.id = part.id;
  order.size_bytes = part.frames->size();
  order.key = key_;
  order.timeout_ms = timeout_ms(part.frames->size());
  for (const int source : sources) {
    order.sources.push_back(handlers_.find_source(source, host));
    order.sources.back().port = part.ports[source];
  }
  part.fetches[host] = sources;
  hold(part, host);
  handlers_.fetch(host, order);
}

// Counted once for all hosts: each of them has as much in memory at worst.
void PartDelivery::hold(Part& part, int host) {
  if (part.holders.empty()) shared_bytes_ += part.bytes;
  part.holders.insert(host);
  holders_.insert(host);
}

// In any case its message counts: its refusals weigh against the sources before new steps are
// planned.
void PartDelivery::on_report(int host, const DeliveryReport& report) {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&report](const auto& each) {
    return each.second.id == report.id;
  });
  if (found == parts_.end()) return;
  Part& part = found->second;
  if (report.here) fetched_bytes_ += part.bytes;
  moved_at_ = Clock::now();
  note_refusals(part, host, report);
  if (!report.here) {
    carry_out(part, part.plan.failed(host));
    return settle();
  }
  if (report.port > 0) part.ports[host] = report.port;
  // The plan's next steps are not this host's, which goes on at once.
  const auto fetched = part.fetches.find(host);
  if (fetched != part.fetches.end()) {
    Supply& supply = pending_[host].supply;
    supply.fetched_bytes += part.bytes;
    if (report.refusals.size() < fetched->second.size()) {
      supply.sources.push_back(handlers_.name(fetched->second[report.refusals.size()]));
    }
    part.fetches.erase(fetched);
    has_come(part, host);
  }
  carry_out(part, part.plan.ready(host, report.port > 0));
  settle();
}

// Reported once: further ones look the same.
void PartDelivery::note_refusals(Part& part, int host, const DeliveryReport& report) {
  const auto fetch = part.fetches.find(host);
  if (fetch == part.fetches.end()) return;
  for (std::size_t i = 0; i < std::min(report.refusals.size(), fetch->second.size()); ++i) {
    const int source = fetch->second[i];
    part.plan.refuse(source);
    const std::string text = handlers_.name(host) + " could not fetch a part of the runtime from " +
                             handlers_.name(source) + ": " + report.refusals[i];
    if (std::exchange(reported_, true)) {
      os::log_debug(kPartComponent, text);
    } else {
      os::log_info(kPartComponent, text + "; what no host can give, the launcher sends");
    }
  }
  if (!report.here) part.fetches.erase(fetch);
}

// Reports of hosts that were lost meanwhile find nothing here.
void PartDelivery::has_come(const Part& part, int host) {
  const auto pending = pending_.find(host);
  if (pending == pending_.end()) return;
  pending->second.parts.erase(&part);
  if (!pending->second.parts.empty()) return;
  const Supply supply = std::move(pending->second.supply);
  pending_.erase(pending);
  handlers_.on_complete(host, supply);
}

// Hosts that fetch from it notice it themselves, and report it.
void PartDelivery::lost(int host) {
  pending_.erase(host);
  holders_.erase(host);
  for (auto& [hash, part] : parts_) {
    part.fetches.erase(host);
    if (part.holders.erase(host) > 0 && part.holders.empty()) shared_bytes_ -= part.bytes;
    carry_out(part, part.plan.lost(host));
  }
  settle();
}

// When all have what they lack, hosts need not keep it any more.
void PartDelivery::settle() {
  const std::size_t before = unsettled_bytes_;
  bool settled = true;
  for (auto& [hash, part] : parts_) {
    if (part.plan.is_settled()) {
      release(part);
    } else {
      settled = false;
    }
  }
  if (settled) {
    loop_.cancel(std::exchange(timer_, 0));
    if (!holders_.empty() && !handlers_.more_may_come()) {
      for (auto& [hash, part] : parts_) forget(part);
      for (const int host : std::exchange(holders_, {})) handlers_.forget(host, "");
    }
  } else {
    watch_waiting();
  }
  if (unsettled_bytes_ < before) handlers_.on_settled();
}

// The launcher's own copy is released at once: a host that comes late brings the frames again. The
// copies on hosts stay until the end, unless they are so large that later parts could not be
// shared.
void PartDelivery::release(Part& part) {
  if (!part.frames) return;
  unsettled_bytes_ -= part.bytes;
  part.frames.reset();
  if (shared_bytes_ < kMuchKeptBytes || handlers_.more_may_come()) return;
  for (const int host : part.holders) handlers_.forget(host, part.id);
  forget(part);
}

// A host that still comes gets it from the launcher.
void PartDelivery::forget(Part& part) {
  part.plan.forget();
  if (!part.holders.empty()) shared_bytes_ -= part.bytes;
  part.holders.clear();
}

// Hosts wait for sources that are still being sent the part. Where that takes for ever (a source
// that lives, but does not read), waiting on would cost the job its start.
void PartDelivery::watch_waiting() {
  if (timer_ != 0) return;
  timer_ = loop_.call_after(kPartLook, [this] {
    timer_ = 0;
    const bool late = Clock::now() - moved_at_ > kPartWaitTime;
    for (auto& [hash, part] : parts_) {
      if (late && part.plan.any_waits()) carry_out(part, part.plan.give_up());
    }
    settle();
  });
}

}  // namespace hora::launcher
