// SPDX-License-Identifier: Apache-2.0
// Ranks for tests: as many as wanted, each a thread with a Communicator of its own, meeting in
// memory.
#pragma once

#include <atomic>
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
  std::int64_t cache_capacity = 1024;
  bool deterministic = false;
  std::vector<std::vector<std::int32_t>> process_sets;
  collectives::Choice hierarchical = collectives::Choice::kAuto;
  // The host of each rank; empty: all on one. Ranks of different ones share no memory.
  std::vector<std::string> hosts;
  std::function<void(collectives::Settings&)> adjust;  // what is not named above
};

using RankBody = std::function<void(collectives::Communicator&)>;

// Not 0: this process is one rank of that many that a launcher started (HORA_TEST_BACKEND=mpi
// mpirun -np 4 collectives_conformance_test); all of them run the same test cases.
int launched_size();
// HORA_TEST_BACKEND: the one to be tested then.
std::string launched_backend();

// The failure of a rank, if any. In a launched process the world is the launcher's, and the answer
// is about its own rank only. Assertions in `body` must not be Catch's (they are not for threads):
// throw, or use check().
std::vector<std::string> run_ranks(const WorldOptions& options, const RankBody& body);

// What rank `rank` of such a world starts with.
collectives::Communicator::Start start_of(const WorldOptions& options, int rank,
                                          const std::shared_ptr<rendezvous::Store>& store,
                                          const std::string& job);

// A number that all ranks of a job on this host see, threads or processes.
class SharedCounter {
 public:
  explicit SharedCounter(const collectives::Communicator& communicator);
  ~SharedCounter();
  SharedCounter(const SharedCounter&) = delete;
  SharedCounter& operator=(const SharedCounter&) = delete;
  std::atomic<int>& value() { return *value_; }

 private:
  std::string name_;
  std::atomic<int>* value_ = nullptr;
};

inline int rank_of(const collectives::Communicator& communicator) {
  return communicator.world().settings.rank;
}
inline int size_of(const collectives::Communicator& communicator) {
  return communicator.world().settings.size;
}

// Throws when false.
void check(bool condition, const std::string& what);

}  // namespace hora::test
