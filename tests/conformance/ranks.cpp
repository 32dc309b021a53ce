// SPDX-License-Identifier: Apache-2.0
#include "ranks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#include "collectives/runtime/launched_world.h"
#include "collectives/runtime/rank_location.h"
#include "tests/support/memory_store.h"

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
  start.settings.parameters.fusion_threshold_bytes = options.fusion_threshold_bytes;
  start.settings.cache_capacity = options.cache_capacity;
  start.settings.deterministic = options.deterministic;
  start.settings.hierarchical_allreduce = options.hierarchical;
  start.settings.hierarchical_allgather = options.hierarchical;
  if (!options.hosts.empty()) {
    start.settings.hostname = options.hosts[static_cast<std::size_t>(rank)];
    start.machine = start.settings.hostname;
    const auto place = collectives::place_among(options.hosts, rank);
    start.settings.local_rank = place.local_rank;
    start.settings.local_size = place.local_size;
    start.settings.cross_rank = place.cross_rank;
    start.settings.cross_size = place.cross_size;
  }
  // HORA_STAR_RANKS=0: the control messages of several hosts go by their leaders.
  if (const char* star = std::getenv("HORA_STAR_RANKS")) {
    start.settings.star_ranks = std::atoi(star);
  }
  if (options.adjust) options.adjust(start.settings);
  start.process_sets = options.process_sets;
  start.address = "127.0.0.1";
  start.store = store;
  start.meeting_key = "hora_control/start-0";
  return start;
}

std::string launched_backend() {
  const char* backend = std::getenv("HORA_TEST_BACKEND");
  return backend == nullptr ? "" : backend;
}

int launched_size() {
  if (launched_backend().empty()) return 0;
  for (const char* name : {"HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* size = std::getenv(name)) return std::atoi(size);
  }
  throw std::runtime_error("HORA_TEST_BACKEND is set, but no launcher started this process");
}

namespace {

std::vector<std::string> run_launched_rank(const WorldOptions& options, const RankBody& body) {
  static int generation = 0;
  try {
    auto start = collectives::start_from_environment(options.process_sets, generation++);
    if (!start) return {start.error().message};
    start->settings.backends = options.backends;
    start->settings.parameters.fusion_threshold_bytes = options.fusion_threshold_bytes;
    auto joined = Communicator::join(std::move(*start));
    if (!joined) return {joined.error().message};
    body(**joined);
  } catch (const std::exception& thrown) {
    return {*thrown.what() == '\0' ? "failed" : thrown.what()};
  }
  return {""};
}

}  // namespace

std::vector<std::string> run_ranks(const WorldOptions& options, const RankBody& body) {
  if (launched_size() > 0) return run_launched_rank(options, body);
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

SharedCounter::SharedCounter(const Communicator& communicator)
    : name_("/hora-count-" + communicator.world().settings.job_id) {
  const int fd = ::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  check(fd >= 0 && ::ftruncate(fd, sizeof *value_) == 0, "no shared memory for a counter");
  void* memory = ::mmap(nullptr, sizeof *value_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  check(memory != MAP_FAILED, "no shared memory for a counter");
  value_ = static_cast<std::atomic<int>*>(memory);  // zeroes: a counter at 0
}

SharedCounter::~SharedCounter() {
  ::munmap(value_, sizeof *value_);
  ::shm_unlink(name_.c_str());  // a rank that comes later finds no name
}

void check(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace hora::test
