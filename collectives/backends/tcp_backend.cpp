// SPDX-License-Identifier: Apache-2.0
// PeerLinks over TCP, as a part of libhora: what ranks of several hosts have without any other
// library.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/registry.h"
#include "collectives/backends/tcp/links.h"
#include "collectives/memory/futex.h"
#include "rendezvous/net/socket.h"

namespace hora::collectives {
namespace {

// A Contact as it travels between the ranks; plain data of fixed size.
struct ContactFrame {
  sockaddr_in6 where{};  // or a sockaddr_in
  tcp::Key key{};
};

// An address of either family lies at the front of a sockaddr_storage; the rest of the card is 0,
// so that equal contacts give equal cards.
ContactFrame card_of(const tcp::Contact& contact) {
  ContactFrame card;
  sockaddr_storage where{};
  net::to_sockaddr(contact.where, where);
  std::memcpy(&card.where, &where, sizeof card.where);
  card.key = contact.key;
  return card;
}

// The bytes are another rank's and need not be aligned.
std::optional<tcp::Contact> contact_of(const void* bytes) {
  ContactFrame card;
  std::memcpy(&card, bytes, sizeof card);
  sockaddr_storage where{};
  std::memcpy(&where, &card.where, sizeof card.where);
  const auto endpoint = net::from_sockaddr(where);
  if (!endpoint) return std::nullopt;
  return tcp::Contact{*endpoint, card.key};
}

static_assert(sizeof(ContactFrame) <= kLinksCardBytes);

// A link that a firewall blocks is to be seen now, and not in the first operation.
std::vector<int> neighbours(const GroupContext& group) {
  const int left = (group.rank + group.world_size - 1) % group.world_size;
  const int right = (group.rank + 1) % group.world_size;
  if (group.world_size == 1) return {};
  return left == right ? std::vector<int>{left} : std::vector<int>{left, right};
}

PeerLinks* refuse(const GroupContext& group, const Error& why, ErrorText& error) {
  error.set("connecting the ranks over %s: %s", group.address, why.message.c_str());
  // A rank without an answer may have waited for a rank that failed.
  error.own = why.code != ErrorCode::kTimedOut && why.code != ErrorCode::kInterrupted;
  return nullptr;
}

PeerLinks* listen(const GroupContext& group, char (&card)[kLinksCardBytes],
                  ErrorText& error) noexcept {
  try {
    auto links = std::make_unique<tcp::Links>(
        group.rank, std::chrono::milliseconds(group.timeout_ms), cores_for(group.local_size));
    auto address = parse_ip_address(group.address);
    if (!address) return refuse(group, address.error(), error);
    auto contact = links->listen(*address);
    if (!contact) return refuse(group, contact.error(), error);
    const ContactFrame mine = card_of(*contact);
    std::memcpy(card, &mine, sizeof mine);
    return links.release();
  } catch (const std::exception& failure) {
    error.set("connecting the ranks over %s: %s", group.address, failure.what());
    return nullptr;
  }
}

void begin(PeerLinks& listening, const GroupContext& group, const void* const* cards) noexcept {
  auto& links = static_cast<tcp::Links&>(listening);
  try {
    std::vector<tcp::Contact> contacts;
    // A card without an address fails when it is used.
    for (int rank = 0; rank < group.world_size; ++rank) {
      contacts.push_back(contact_of(cards[rank]).value_or(tcp::Contact{}));
    }
    links.learn(std::move(contacts));
    links.begin(neighbours(group));
  } catch (const std::exception& failure) {
    links.fail(failure.what());
  }
}

PeerLinks* connect(const GroupContext& group, ErrorText& error) noexcept {
  try {
    std::unique_ptr<tcp::Links> links(static_cast<tcp::Links*>(group.listening));
    if (links == nullptr) {
      char card[kLinksCardBytes] = {};
      links.reset(static_cast<tcp::Links*>(listen(group, card, error)));
      // The others learn it by the exchange, in which this rank does not take part.
      if (links == nullptr) return nullptr;
      const void* const* cards = nullptr;
      const std::size_t* lengths = nullptr;
      const bool given =
          group.services->exchange(card, sizeof card, false, &cards, &lengths, error);
      if (!given) return nullptr;
      begin(*links, group, cards);
    }
    const auto is_ending = [&] { return group.services->is_ending(); };
    if (Status met = links->meet(neighbours(group), is_ending); !met) {
      return refuse(group, met.error(), error);
    }
    return links.release();
  } catch (const std::exception& failure) {
    error.set("connecting the ranks over %s: %s", group.address, failure.what());
    return nullptr;
  }
}

// Above Gloo, below the hierarchy that uses it, and below what knows more of the machine.
constexpr auto kRows = rows_for_all_operations({.score = 110});
constexpr BackendDescriptor kDescriptor = [] {
  BackendDescriptor descriptor = peer_links_descriptor("tcp", "TCP", kRows, connect);
  descriptor.traits = kAnyThread;
  descriptor.listen = listen;
  descriptor.begin = begin;
  return descriptor;
}();

}  // namespace

const BackendDescriptor* tcp_backend_descriptor() { return &kDescriptor; }

}  // namespace hora::collectives
