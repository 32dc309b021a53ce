// SPDX-License-Identifier: Apache-2.0
// N processes meet at a rendezvous server, as the ranks of a starting job do, and say what it cost:
//   wire_up HOST PORT RANKS SCOPES batch|classic
//
// batch    what Hora's runtime does: one meeting per scope, a write and a waiting read
// classic  what Horovod's Gloo context does: a connection per request, each peer's key asked for
//          every 10 ms until it is there, and then fetched; SCOPES such meetings
//
// Prints one line of JSON: seconds from the first start to the last end, requests, connections.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>
#include <thread>

#include "rendezvous/base/text.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/http/client.h"
#include "rendezvous/http_store.h"

using namespace hora;
using namespace hora::rendezvous;

namespace {

constexpr std::size_t kAddressBytes = 136;

struct Shared {  // between the processes
  std::atomic<std::uint64_t> requests;
  std::atomic<std::uint64_t> connections;
  std::atomic<int> failed;
};

struct Job {
  std::string host;
  std::uint16_t port = 0;
  int ranks = 0;
  int scopes = 0;
};

Deadline soon() { return Clock::now() + std::chrono::seconds(300); }

Status meet_batch(const Job& job, int rank, Shared& shared) {
  HttpStore store({.host = job.host, .port = job.port, .token = {}});
  // One address for all peers: ours does not need a listening pair for each of them.
  const std::string address(kAddressBytes, 'a');
  for (int scope = 0; scope < job.scopes; ++scope) {
    const std::string place = "scope" + std::to_string(scope);
    HORA_TRY(store.set(place + "/" + rank_key(rank), address, soon()));
    auto all = store.gather(place, static_cast<std::size_t>(job.ranks), soon());
    if (!all) return std::move(all).error();
  }
  shared.requests += store.requests_sent();
  shared.connections += store.connections_made();
  return Ok{};
}

// Horovod's side of its protocol, request for request.
class ClassicWorker {
 public:
  ClassicWorker(const Job& job, Shared& shared) : job_(job), shared_(shared) {}

  Status meet(const std::string& scope, int rank) {
    const std::string place = "/" + scope + "/";
    HORA_TRY(expect(http::Method::kPut, place + "rank_" + std::to_string(rank), "host"));
    for (int peer = 0; peer < rank; ++peer) {
      HORA_TRY(status_of(http::Method::kGet, place + "rank_" + std::to_string(peer), {}));
    }
    const std::string blobs((static_cast<std::size_t>(job_.ranks) - 1) * kAddressBytes, 'a');
    HORA_TRY(expect(http::Method::kPut, place + std::to_string(rank), blobs));
    for (int peer = 0; peer < job_.ranks; ++peer) {
      if (peer == rank) continue;
      const std::string target = place + std::to_string(peer);
      for (;;) {
        auto status = status_of(http::Method::kGet, target, {});
        if (!status) return std::move(status).error();
        if (*status == 200) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      HORA_TRY(expect(http::Method::kGet, target, {}));
    }
    return Ok{};
  }

 private:
  Result<int> status_of(http::Method method, const std::string& target, std::string_view body) {
    http::Client client({.host = job_.host, .port = job_.port, .bearer_token = {}});
    ++shared_.requests;
    ++shared_.connections;
    auto response = client.send({.method = method, .target = target, .body = body}, soon());
    if (!response) return std::move(response).error();
    return response->head.status;
  }
  Status expect(http::Method method, const std::string& target, std::string_view body) {
    auto status = status_of(method, target, body);
    if (!status) return std::move(status).error();
    if (*status == 200) return Ok{};
    return make_error(ErrorCode::kFailed, target + ": " + std::to_string(*status));
  }

  const Job& job_;
  Shared& shared_;
};

Status meet_classic(const Job& job, int rank, Shared& shared) {
  ClassicWorker worker(job, shared);
  for (int scope = 0; scope < job.scopes; ++scope) {
    HORA_TRY(worker.meet("classic" + std::to_string(scope), rank));
  }
  return Ok{};
}

}  // namespace

int main(int argc, char** argv) {
  Job job;
  const std::string_view way = argc == 6 ? argv[5] : "";
  if (way == "batch" || way == "classic") {
    job.host = argv[1];
    job.port = parse_int<std::uint16_t>(argv[2]).value_or(0);
    job.ranks = parse_int<int>(argv[3]).value_or(0);
    job.scopes = parse_int<int>(argv[4]).value_or(0);
  }
  if (job.port == 0 || job.ranks < 1 || job.scopes < 1) {
    std::fprintf(stderr, "usage: wire_up HOST PORT RANKS SCOPES batch|classic\n");
    return 2;
  }
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Shared& shared = *new (memory) Shared{};

  const auto start = Clock::now();
  for (int rank = 0; rank < job.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) return 1;
    if (child > 0) continue;
    const Status met =
        way == "batch" ? meet_batch(job, rank, shared) : meet_classic(job, rank, shared);
    if (!met) {
      std::fprintf(stderr, "rank %d: %s\n", rank, met.error().message.c_str());
      ++shared.failed;
    }
    ::_exit(met ? 0 : 1);
  }
  while (::wait(nullptr) > 0) continue;
  const std::chrono::duration<double> seconds = Clock::now() - start;
  std::printf(
      "{\"way\": \"%s\", \"ranks\": %d, \"scopes\": %d, \"seconds\": %.4f, \"requests\": %llu, "
      "\"connections\": %llu, \"failed\": %d}\n",
      argv[5], job.ranks, job.scopes, seconds.count(),
      static_cast<unsigned long long>(shared.requests.load()),
      static_cast<unsigned long long>(shared.connections.load()), shared.failed.load());
  return shared.failed == 0 ? 0 : 1;
}
