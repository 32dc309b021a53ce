// Ranks for tests: as many as wanted, each a thread with a Communicator of its own, meeting in
// memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/runtime/communicator.h"

namespace hora::test {

struct WorldOptions {
  int size = 2;
  std::string backends;  // HORA_BACKENDS; empty: all
  std::int64_t fusion_threshold_bytes = 128 << 20;
  std::vector<std::vector<std::int32_t>> process_sets;
  // The host of each rank; empty: all on one.
  std::vector<std::string> hosts;
};

using RankBody = std::function<void(collectives::Communicator&)>;

// What went wrong on a rank, if anything. Assertions in `body` must not be Catch's (they are not
// for threads): throw, or use check().
std::vector<std::string> run_ranks(const WorldOptions& options, const RankBody& body);

// What rank `rank` of such a world starts with.
collectives::Communicator::Start start_of(const WorldOptions& options, int rank,
                                          const std::shared_ptr<rendezvous::Store>& store,
                                          const std::string& job);

// Throws when false.
void check(bool condition, const std::string& what);

}  // namespace hora::test
