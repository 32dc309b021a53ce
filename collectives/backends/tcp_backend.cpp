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

// By rank: the set of the links is the world, so its index is the rank.
bool learn_contacts(const GroupContext& group, const tcp::Contact& own,
                    std::vector<tcp::Contact>& contacts, ErrorText& error) {
  const ContactFrame mine = card_of(own);
  const void* const* theirs = nullptr;
  const std::size_t* lengths = nullptr;
  if (!group.services->exchange(&mine, sizeof mine, false, &theirs, &lengths, error)) return false;
  for (int rank = 0; rank < group.world_size; ++rank) {
    const auto contact =
        lengths[rank] == sizeof(ContactFrame) ? contact_of(theirs[rank]) : std::nullopt;
    if (!contact) return error.set("rank %d sent no address", rank);
    contacts.push_back(*contact);
  }
  return true;
}

// A link that a firewall blocks is to be seen now, and not in the first operation.
std::vector<int> neighbours(const GroupContext& group) {
  const int left = (group.rank + group.world_size - 1) % group.world_size;
  const int right = (group.rank + 1) % group.world_size;
  if (group.world_size == 1) return {};
  return left == right ? std::vector<int>{left} : std::vector<int>{left, right};
}

PeerLinks* connect(const GroupContext& group, ErrorText& error) noexcept {
  const auto refuse = [&](const Error& why) -> PeerLinks* {
    error.set("connecting the ranks over %s: %s", group.address, why.message.c_str());
    // A rank without an answer may have waited for a rank that failed.
    error.own = why.code != ErrorCode::kTimedOut && why.code != ErrorCode::kInterrupted;
    return nullptr;
  };
  try {
    auto links = std::make_unique<tcp::Links>(
        group.rank, std::chrono::milliseconds(group.timeout_ms), cores_for(group.local_size));
    auto address = parse_ip_address(group.address);
    if (!address) return refuse(address.error());
    auto contact = links->listen(*address);
    // The others learn it by the exchange, in which this rank does not take part.
    if (!contact) return refuse(contact.error());
    std::vector<tcp::Contact> contacts;
    if (!learn_contacts(group, *contact, contacts, error)) return nullptr;
    links->learn(std::move(contacts));
    const auto is_ending = [&] { return group.services->is_ending(); };
    if (Status met = links->meet(neighbours(group), is_ending); !met) return refuse(met.error());
    return links.release();
  } catch (const std::exception& failure) {
    error.set("connecting the ranks over %s: %s", group.address, failure.what());
    return nullptr;
  }
}

// Above Gloo, below the hierarchy that uses it, and below what knows more of the machine.
constexpr auto kRows = rows_for_all_operations({.score = 110});
constexpr BackendDescriptor kDescriptor =
    with_traits(peer_links_descriptor("tcp", "TCP", kRows, connect), kAnyThread);

}  // namespace

const BackendDescriptor* tcp_backend_descriptor() { return &kDescriptor; }

}  // namespace hora::collectives
