#include "ranks.h"

#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "rendezvous/memory_store.h"

namespace hora::test {

using collectives::Communicator;

Communicator::Start start_of(const WorldOptions& options, int rank,
                             const std::shared_ptr<rendezvous::Store>& store,
                             const std::string& job) {
  Communicator::Start start;
  start.settings.rank = rank;
  start.settings.size = options.size;
  start.settings.local_rank = rank;
  start.settings.local_size = options.size;
  start.settings.job_id = job;
  start.settings.rendezvous_token = "a token";
  start.settings.backends = options.backends;
  start.settings.fusion_threshold_bytes = options.fusion_threshold_bytes;
  start.process_sets = options.process_sets;
  start.address = "127.0.0.1";
  start.store = store;
  start.meeting_key = "hora_control/start-0";
  return start;
}

std::vector<std::string> run_ranks(const WorldOptions& options, const RankBody& body) {
  static std::atomic<int> jobs{0};
  const std::string job =
      "test-" + std::to_string(getpid()) + "-" + std::to_string(jobs.fetch_add(1));
  const auto store = std::make_shared<rendezvous::MemoryStore>();
  std::vector<std::string> failures(static_cast<std::size_t>(options.size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.size; ++rank) {
    threads.emplace_back([&, rank] {
      std::string& failure = failures[static_cast<std::size_t>(rank)];
      try {
        auto joined = Communicator::join(start_of(options, rank, store, job));
        if (!joined) {
          failure = joined.error().message;
          return;
        }
        body(**joined);
      } catch (const std::exception& thrown) {
        failure = thrown.what();
        if (failure.empty()) failure = "failed";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

void check(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace hora::test
