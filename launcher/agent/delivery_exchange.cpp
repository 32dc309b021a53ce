// SPDX-License-Identifier: Apache-2.0
// A delivery is kept as the frames that it came in. So what is served are the bytes that the
// launcher would have sent, and the launcher can name them by one hash for all hosts.
#include "launcher/agent/delivery_exchange.h"

#include <algorithm>
#include <utility>

#include "launcher/protocol/agent_limits.h"
#include "launcher/protocol/part_list.h"

namespace hora::launcher {

namespace {

bool is_id(std::string_view text) { return text.size() == kDeliveryId && is_hash(text); }

}  // namespace

DeliveryExchange::DeliveryExchange(os::EventLoop& loop, Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)) {}

Status DeliveryExchange::keep(KeepDelivery order) {
  if (keeping_) return make_error(ErrorCode::kUsage, "two orders to keep one delivery");
  if (!is_id(order.id)) return make_error(ErrorCode::kUsage, "an id that is no SHA-256");
  keeping_ = std::move(order);
  kept_.clear();
  return Ok{};
}

Status DeliveryExchange::fetch(FetchDelivery order) {
  if (!is_id(order.id)) return make_error(ErrorCode::kUsage, "an id that is no SHA-256");
  if (order.size_bytes == 0 || order.size_bytes > kMostKeptBytes) {
    return make_error(ErrorCode::kUsage,
                      "an order to fetch " + std::to_string(order.size_bytes) + " bytes");
  }
  const bool waits =
      std::any_of(to_fetch_.begin(), to_fetch_.end(),
                  [&order](const FetchDelivery& each) { return each.id == order.id; });
  if (waits || fetches_.count(order.id) > 0) {
    return make_error(ErrorCode::kUsage, "two orders to fetch one delivery");
  }
  to_fetch_.push_back(std::move(order));
  start_fetches();
  return Ok{};
}

// A folder of the user's has thousands of parts, and hosts are told of many at a time.
void DeliveryExchange::start_fetches() {
  while (!to_fetch_.empty() && fetches_.size() < kMostFetches) {
    FetchDelivery order = std::move(to_fetch_.front());
    to_fetch_.pop_front();
    const std::string id = order.id;
    auto fetch = std::make_unique<DeliveryFetch>(
        loop_, order,
        [this, id](DeliveryFetch::Outcome outcome) { on_fetched(id, std::move(outcome)); });
    DeliveryFetch& started = *fetch;
    fetches_.try_emplace(id, std::move(order), std::move(fetch));
    started.start();
  }
}

void DeliveryExchange::record(const Frame& frame) {
  if (!keeping_) return;
  append_frame(kept_, frame.type, frame.payload);
  kept_whole_ = frame.type == FrameType::kDataEnd;
}

// Only what has been unpacked is served: a host whose disk is full has failed, and passes nothing
// on.
void DeliveryExchange::proceed() {
  if (kept_whole_) {
    kept_whole_ = false;
    const KeepDelivery order = *std::exchange(keeping_, std::nullopt);
    serve(order.key, order.id,
          std::make_shared<const std::string>(std::exchange(kept_, std::string())),
          DeliveryReport{order.id, true, 0, {}});
  }
  unpack_fetched();
}

// Several deliveries may be fetched at a time, from different hosts. They are unpacked in the order
// in which they come.
void DeliveryExchange::on_fetched(const std::string& id, DeliveryFetch::Outcome outcome) {
  const auto found = fetches_.find(id);
  fetched_.push_back({std::move(found->second.first), std::move(outcome)});
  // It is still on the stack: destroyed by the next turn of the loop.
  loop_.post([finished = std::shared_ptr<DeliveryFetch>(std::move(found->second.second))] {});
  fetches_.erase(found);
  start_fetches();
  unpack_fetched();
}

// Two deliveries cannot be unpacked at a time: what was fetched waits for the end of the
// launcher's.
void DeliveryExchange::unpack_fetched() {
  while (!fetched_.empty() && handlers_.may_unpack()) {
    Fetched next = std::move(fetched_.front());
    fetched_.pop_front();
    DeliveryReport report{next.order.id, false, 0, std::move(next.outcome.refusals)};
    if (!next.outcome.frames) {
      handlers_.report(std::move(report));
      continue;
    }
    if (!handlers_.unpack(*next.outcome.frames)) return;
    report.here = true;
    serve(next.order.key, next.order.id, std::move(next.outcome.frames), std::move(report));
  }
}

// Without a socket it serves nobody; the launcher finds others.
void DeliveryExchange::serve(const std::string& key, const std::string& id,
                             std::shared_ptr<const std::string> frames, DeliveryReport report) {
  if (!server_) {
    auto server = DeliveryServer::create(loop_, key);
    if (server) server_ = std::move(*server);
  }
  if (server_) {
    server_->offer(id, std::move(frames));
    report.port = server_->port();
  }
  handlers_.report(std::move(report));
}

// The port closes with the server. A fetch that is under way ends, too: the agent leaves.
void DeliveryExchange::forget(const std::string& id) {
  if (!id.empty()) {
    // Hosts lack other deliveries.
    if (server_) server_->withdraw(id);
    return;
  }
  to_fetch_.clear();
  fetches_.clear();
  fetched_.clear();
  server_.reset();
}

}  // namespace hora::launcher
