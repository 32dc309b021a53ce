// SPDX-License-Identifier: Apache-2.0
// A list of what a rank asks for, as bytes: what Negotiator::ask writes and
// Negotiator::handle_requests reads, one by one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "collectives/negotiation/sequence.h"
#include "collectives/negotiation/wire.h"

namespace hora::test {

// In full, or what it asked for before.
using Wish = std::variant<collectives::Request, collectives::Reference>;

inline std::string encode_wishes(const std::vector<Wish>& wishes) {
  collectives::ItemWriter out;
  for (const Wish& wish : wishes) {
    if (const auto* reference = std::get_if<collectives::Reference>(&wish)) {
      out.by_number(*reference);
    } else {
      encode_request(out.in_full(), std::get<collectives::Request>(wish));
    }
  }
  return out.take();
}

// Nothing when they are malformed.
inline std::optional<std::vector<Wish>> decode_wishes(std::string_view bytes) {
  using Next = collectives::ItemReader::Next;
  collectives::ItemReader in(bytes);
  std::vector<Wish> wishes;
  for (Next next = in.next(); next != Next::kEnd; next = in.next()) {
    if (next == Next::kMalformed) return std::nullopt;
    if (next == Next::kByNumber) {
      wishes.emplace_back(in.reference());
      continue;
    }
    collectives::Request request;
    if (!decode_request(in.in(), request)) return std::nullopt;
    wishes.emplace_back(std::move(request));
  }
  return wishes;
}

}  // namespace hora::test
