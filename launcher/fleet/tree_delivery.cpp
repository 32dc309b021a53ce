// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/tree_delivery.h"

#include <algorithm>
#include <utility>

namespace hora::launcher {

namespace {

constexpr std::size_t kPackedAtOnce = 4;
// With the parts that are being packed, this is about what the launcher needs of memory.
constexpr std::size_t kMostUnderWay = 128u << 20;

}  // namespace

TreeDelivery::TreeDelivery(os::EventLoop& loop, const ShipFiles* files, Handlers handlers)
    : files_(files),
      handlers_(std::move(handlers)),
      packer_(loop, [this](const TreePart& part, Result<PartPacker::Frames> frames) {
        on_packed(part, std::move(frames));
      }) {}

OfferTree TreeDelivery::offer(int host) {
  waiting_[host] = {};
  OfferTree offer;
  for (const TreePart& part : files_->tree().parts) offer.parts.push_back(part.hash);
  for (const TreePart& part : files_->environment_tree().parts) {
    offer.environment.push_back(part.hash);
  }
  const auto& environment = files_->environment();
  if (environment && environment->uses_host_python) offer.interpreter = environment->program;
  return offer;
}

void TreeDelivery::on_state(int host, const TreeState& state) {
  if (state.missing.empty()) {
    waiting_.erase(host);
    return;
  }
  waiting_[host] = {/*answered=*/true, state.missing.size()};
  for (const std::string& hash : state.missing) {
    // Whoever asks while it is packed gets the same frames.
    const auto packing = packing_.find(hash);
    (packing == packing_.end() ? to_pack_[hash] : packing->second).push_back(host);
  }
  pack_more();
}

bool TreeDelivery::awaits_answer(int host) const {
  const auto found = waiting_.find(host);
  return found != waiting_.end() && !found->second.answered;
}

// Called again whenever a part was packed, the queue of a link has become short, or the hosts have
// passed on what they share.
void TreeDelivery::pack_more() {
  while (!to_pack_.empty() && packing_.size() < kPackedAtOnce &&
         handlers_.bytes_under_way() < kMostUnderWay) {
    auto next = to_pack_.extract(to_pack_.begin());
    const TreePart* part = files_->find_part(next.key());
    packing_.insert(std::move(next));
    packer_.pack(*part);
  }
}

void TreeDelivery::on_packed(const TreePart& part, Result<PartPacker::Frames> frames) {
  std::vector<int> hosts = std::move(packing_.extract(part.hash).mapped());
  // The first ones get it from here, and are the first to serve it: others for each part.
  const auto first = static_cast<std::ptrdiff_t>(packed_++ % hosts.size());
  std::rotate(hosts.begin(), hosts.begin() + first, hosts.end());
  if (!frames) {
    // The job cannot start any more, so nothing else needs to be packed.
    to_pack_.clear();
    files_->forget();
    return handlers_.on_unreadable(hosts.front(), std::move(frames).error());
  }
  for (const int host : hosts) {
    const auto waiting = waiting_.find(host);
    if (waiting == waiting_.end()) continue;  // it is lost
    if (--waiting->second.parts == 0) waiting_.erase(waiting);
    handlers_.deliver(host, part.hash, *frames);
  }
  pack_more();
}

}  // namespace hora::launcher
