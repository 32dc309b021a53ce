// SPDX-License-Identifier: Apache-2.0
// Every rank numbers the exchanges of a scope by itself; equal numbers belong together because all
// members call exchange() equally often. Rank 0 collects the parts of a round and sends each member
// what all others gave it. Parts may arrive before rank 0 has defined the scope; they wait in
// rounds_.
#include "collectives/control/oob_allgather.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>

#include "collectives/control/messages.h"
#include "collectives/negotiation/wire.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

namespace {

// A bound for what a malformed message can make this process allocate.
constexpr std::size_t kMostRanks = 1 << 24;
constexpr std::size_t kMostSamples = 64;

std::int64_t now_ns() { return nanoseconds_of(Clock::now()); }

std::string encode(ControlMessage kind, std::int32_t scope, std::uint64_t number,
                   const std::vector<std::string>& parts) {
  WireWriter out;
  out.u8(static_cast<std::uint8_t>(kind));
  out.varint(static_cast<std::uint64_t>(scope));
  out.varint(number);
  if (kind == ControlMessage::kExchangeResult) out.integer(now_ns());
  out.texts(parts);
  return out.take();
}

bool is_kind(const Incoming& message, ControlMessage kind) {
  return !message.gone && !message.bytes.empty() &&
         static_cast<std::uint8_t>(message.bytes[0]) == static_cast<std::uint8_t>(kind);
}

bool ends_the_world(const Incoming& message) {
  return message.gone || ends_the_world(kind_of(message.bytes));
}

}  // namespace

// The star of the ranks on this host, with an exchange of its own.
struct OobAllgather::Host {
  std::int32_t scope = 0;
  LocalListener listener;
  std::vector<std::string> cards;
  int place = 0;
  std::unique_ptr<ControlChannel> channel;
  std::unique_ptr<OobAllgather> exchanges;
};

OobAllgather::OobAllgather(ControlChannel& channel, int rank) : channel_(&channel), rank_(rank) {}

OobAllgather::~OobAllgather() = default;

void OobAllgather::meet_on_host(std::int32_t scope, LocalListener listener,
                                std::vector<std::string> cards, int place) {
  host_ = std::make_unique<Host>();
  host_->scope = scope;
  host_->listener = std::move(listener);
  host_->cards = std::move(cards);
  host_->place = place;
}

void OobAllgather::leave_host() { host_.reset(); }

bool OobAllgather::is_ending() {
  for (Incoming& message : channel_->poll(kNoWait)) {
    if (!handle(message)) deferred_.push_back(std::move(message));
  }
  return broken_off_() || std::ranges::any_of(deferred_, [](const Incoming& message) {
           return ends_the_world(message);
         });
}

Result<std::vector<std::string>> OobAllgather::exchange_on_host(
    const std::vector<std::string>& parts, Deadline deadline) {
  constexpr std::chrono::milliseconds kLook{50};
  Host& host = *host_;
  const auto is_ending = [this] { return this->is_ending(); };
  if (host.exchanges == nullptr) {
    auto channel = hora::collectives::meet_on_host(std::move(host.listener), host.cards, host.place,
                                                   deadline, is_ending);
    if (!channel) return std::move(channel).error();
    host.channel = std::move(*channel);
    host.exchanges = std::make_unique<OobAllgather>(*host.channel, host.place);
    host.exchanges->break_off_when(is_ending);
    host.exchanges->look_every_ = kLook;
  }
  std::vector<std::int32_t> places(host.cards.size());
  std::iota(places.begin(), places.end(), 0);
  return host.exchanges->exchange(0, places, parts, deadline);
}

void OobAllgather::define_scope(std::int32_t scope, std::vector<std::int32_t> members) {
  scopes_[scope] = std::move(members);
}

void OobAllgather::forget_scope(std::int32_t scope) {
  scopes_.erase(scope);
  next_number_.erase(scope);
}

bool OobAllgather::handle(const Incoming& message) {
  const bool result = is_kind(message, ControlMessage::kExchangeResult);
  if (!result && !is_kind(message, ControlMessage::kExchange)) return false;
  WireReader in(std::string_view(message.bytes).substr(1));
  const auto scope = static_cast<std::int32_t>(in.varint());
  const std::uint64_t number = in.varint();
  const std::int64_t zero_ns = result ? in.integer() : 0;
  std::vector<std::string> parts = in.texts(kMostRanks);
  if (!in.ok()) return true;  // the peer is authenticated, so only our own encoder writes here
  if (result) {
    if (samples_.size() < kMostSamples) samples_.push_back({sent_ns_, zero_ns, now_ns()});
    results_[{scope, number}] = std::move(parts);
  } else {
    contribute({scope, number}, message.rank, std::move(parts));
  }
  return true;
}

void OobAllgather::contribute(const Key& key, int rank, std::vector<std::string> parts) {
  Round& round = rounds_[key];
  round.given[rank] = std::move(parts);
  const auto scope = scopes_.find(key.first);
  // Not complete, or the scope has no definition yet: the part waits in rounds_.
  if (scope == scopes_.end() || round.given.size() < scope->second.size()) return;
  answer(key, scope->second, round);
  rounds_.erase(key);
}

void OobAllgather::answer(const Key& key, const std::vector<std::int32_t>& members,
                          const Round& round) {
  const auto received_by = [&](std::size_t to) {
    std::vector<std::string> received;
    received.reserve(members.size());
    for (const std::int32_t from : members) {
      const std::vector<std::string>& given = round.given.at(from);
      received.push_back(given.size() == 1 ? given[0]
                                           : (to < given.size() ? given[to] : std::string()));
    }
    return received;
  };
  const auto encoded = [&](const std::vector<std::string>& received) {
    return encode(ControlMessage::kExchangeResult, key.first, key.second, received);
  };
  // Nearly always all get the same. It is then put together once: with N ranks it is N parts long.
  if (std::all_of(round.given.begin(), round.given.end(),
                  [](const auto& each) { return each.second.size() == 1; })) {
    std::vector<std::int32_t> others = members;
    const bool takes_part = std::erase(others, rank_) > 0;
    std::vector<std::string> received = received_by(0);
    channel_->send_to_all(others, encoded(received));
    if (takes_part) results_[key] = std::move(received);
    return;
  }
  for (std::size_t to = 0; to < members.size(); ++to) {
    if (members[to] == rank_) {
      results_[key] = received_by(to);
    } else {
      channel_->send(members[to], encoded(received_by(to)));
    }
  }
}

std::vector<int> OobAllgather::missing() const {
  std::set<int> awaited;
  std::set<int> waiting;
  // A rank may have given its part of one exchange and owe one of another. Only ranks that wait
  // nowhere hold the others up.
  for (const auto& [key, round] : rounds_) {
    const auto scope = scopes_.find(key.first);
    if (scope == scopes_.end()) continue;
    for (const std::int32_t rank : scope->second) {
      (round.given.count(rank) != 0 ? waiting : awaited).insert(rank);
    }
  }
  std::vector<int> missing;
  std::set_difference(awaited.begin(), awaited.end(), waiting.begin(), waiting.end(),
                      std::back_inserter(missing));
  return missing;
}

Result<std::vector<std::string>> OobAllgather::exchange(std::int32_t scope,
                                                        const std::vector<std::int32_t>& members,
                                                        const std::vector<std::string>& parts,
                                                        Deadline deadline) {
  if (host_ != nullptr && host_->scope == scope) return exchange_on_host(parts, deadline);
  const Key key{scope, next_number_[scope]++};
  define_scope(scope, members);
  ++exchanges_;
  if (rank_ == 0) {
    contribute(key, 0, parts);
  } else {
    sent_ns_ = now_ns();
    channel_->send(0, encode(ControlMessage::kExchange, key.first, key.second, parts));
  }
  const auto start = Clock::now();
  // A report later than the deadline would be pointless: the error says the same.
  const bool reports = rank_ == 0 && report_late_ && late_after_ < deadline - start;
  Deadline late = reports ? start + late_after_ : Deadline::max();
  if (rank_ != 0) deadline += kRankZeroFirst;
  while (results_.count(key) == 0) {
    const auto now = Clock::now();
    if (now >= late) {
      late = Deadline::max();
      report_late_(missing());
    }
    if (now >= deadline) {
      return make_error(ErrorCode::kTimedOut, "timed out waiting for the other ranks to set up");
    }
    // The result wins over a simultaneous end of the world: this rank may act on what it has got,
    // and sees the end afterwards.
    for (const Incoming& message : deferred_) {
      if (ends_the_world(message)) {
        return make_error(ErrorCode::kInterrupted, "the job is ending");
      }
    }
    if (broken_off_()) return make_error(ErrorCode::kInterrupted, "the job is ending");
    const Deadline look = look_every_ < deadline - now ? now + look_every_ : deadline;
    for (Incoming& message : channel_->poll(std::min(look, late))) {
      if (handle(message)) continue;
      deferred_.push_back(std::move(message));
    }
  }
  auto result = results_.extract(key);
  return std::move(result.mapped());
}

}  // namespace hora::collectives
