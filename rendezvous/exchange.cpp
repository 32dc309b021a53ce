// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/exchange.h"

#include "rendezvous/base/text.h"
#include "rendezvous/contract/store_keys.h"

namespace hora::rendezvous {

namespace {

// The values by rank, as far as they exist.
std::vector<std::optional<std::string>> by_rank(KvEntries&& entries, int size) {
  std::vector<std::optional<std::string>> values(static_cast<std::size_t>(size));
  for (auto& [name, value] : entries) {
    // The place may hold other keys; the caller notices when a rank is missing then.
    const auto rank = parse_int<int>(name);
    if (rank && *rank >= 0 && *rank < size) {
      values[static_cast<std::size_t>(*rank)] = std::move(value);
    }
  }
  return values;
}

// "1, 2 and 40 more"
std::string name_missing(const std::vector<std::optional<std::string>>& values) {
  // A thousand missing ranks must not make a message of a thousand numbers.
  constexpr std::size_t kNamed = 16;
  std::vector<std::string> names;
  std::size_t missing = 0;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    if (values[rank]) continue;
    if (++missing <= kNamed) names.push_back(std::to_string(rank));
  }
  std::string text = join(names, ", ");
  if (missing > kNamed) text += " and " + std::to_string(missing - kNamed) + " more";
  return (missing == 1 ? "rank " : "ranks ") + text;
}

// Time for one more request after the deadline, to find out which are missing.
constexpr std::chrono::seconds kPostMortem{2};

// Replaces a time-out by the names of the missing ranks, if the store still answers.
Error explain(Store& store, std::string_view place, int size, Error error) {
  if (error.code != ErrorCode::kTimedOut) return error;
  auto present = store.gather(place, 0, Clock::now() + kPostMortem);
  if (!present) return error;
  const auto values = by_rank(std::move(*present), size);
  return make_error(ErrorCode::kTimedOut, "timed out waiting for " + name_missing(values) + " of " +
                                              std::to_string(size));
}

}  // namespace

Result<std::vector<std::string>> exchange(Store& store, std::string_view place, int rank, int size,
                                          std::string_view value, Deadline deadline) {
  const std::string what = "exchanging values in " + quote(place);
  // A wrong rank would overwrite another rank's value, or wait for ever.
  if (size < 1 || rank < 0 || rank >= size) {
    return make_error(ErrorCode::kUsage,
                      what + ": rank " + std::to_string(rank) + " of " + std::to_string(size));
  }
  const std::string key = std::string(place) + "/" + rank_key(rank);
  if (auto status = store.set(key, value, deadline); !status) {
    return std::move(status).error().with_context(what);
  }
  // Every process sets its value before it waits, so none waits for itself.
  auto entries = store.gather(place, static_cast<std::size_t>(size), deadline);
  if (!entries) {
    return explain(store, place, size, std::move(entries).error()).with_context(what);
  }
  std::vector<std::string> values;
  values.reserve(static_cast<std::size_t>(size));
  for (auto& present : by_rank(std::move(*entries), size)) {
    if (!present) {
      return make_error(ErrorCode::kFailed, what + ": the scope contains keys that are not ranks");
    }
    values.push_back(std::move(*present));
  }
  return values;
}

Status barrier(Store& store, std::string_view place, int rank, int size, Deadline deadline) {
  auto values = exchange(store, place, rank, size, {}, deadline);
  if (!values) return std::move(values).error();
  return Ok{};
}

}  // namespace hora::rendezvous
