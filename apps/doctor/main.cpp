// SPDX-License-Identifier: Apache-2.0
// hora-doctor: runs on a host for `horarun doctor`, which starts it there and reads what it prints.
//
//   on stdout, one JSON object a line: {"port"}, {"machine", "leftovers"}, {"software"},
//   {"selftests"}, and an answer to each line on stdin:
//     clock                             {"clock_ns"}
//     probe ID PORT WORD ADDRESS...     {"probe": ID, "address", ...} by the first address that
//                                       answers; WORD is the nonce that this host expects
//     world RANK SIZE HOST JOB ADDRESS PORT TOKEN [INTERFACE]
//                                       {"world"}: a rank of a job of all hosts
//   It ends with its input.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include "facts.h"
#include "peers.h"
#include "selftests.h"

namespace {

using hora::doctor::Json;

constexpr std::chrono::milliseconds kLeastTimeout{4'000};
constexpr std::chrono::milliseconds kDeepTimeout{120'000};

// Two threads print; a line must not be split.
void print(const Json& line) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number(const char* name) { return std::atoi(variable(name).c_str()); }

Json answer_clock() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  Json out;
  out["clock_ns"] = std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  return out;
}

Json answer_probe(std::istringstream& words) {
  std::string id, text, secret;
  int port = 0;
  words >> id >> port >> secret;
  Json out;
  out["probe"] = id;
  out["error"] = "no address to try";
  // Tries the addresses in order and reports the first that answers, or the last error.
  while (words >> text) {
    const auto address = hora::parse_ip_address(text);
    if (!address) continue;
    Json found = hora::doctor::probe_peer({*address, static_cast<std::uint16_t>(port)}, secret);
    out["address"] = text;
    const bool reached = !found.contains("error");
    out.erase("error");
    out.update(found);
    if (reached) break;
  }
  return out;
}

Json answer_world(std::istringstream& words, std::chrono::milliseconds timeout) {
  hora::doctor::WorldSeat seat;
  words >> seat.rank >> seat.size >> seat.host >> seat.job >> seat.address >> seat.port >>
      seat.token;
  words >> seat.interface;
  Json out;
  out["world"] = hora::doctor::join_world(seat, timeout);
  return out;
}

}  // namespace

int main() {
  // The secret comes from the environment, because arguments are visible to all users.
  const std::string secret = variable("HORA_DOCTOR_NONCE");
  if (secret.empty()) {
    std::fputs("hora-doctor is started by 'horarun doctor'\n", stderr);
    return 2;
  }
  const bool deep = variable("HORA_DOCTOR_DEEP") == "1";
  auto server = hora::doctor::PeerServer::start(secret);
  Json port;
  port["port"] = server ? (*server)->port() : 0;
  if (!server) port["error"] = server.error().message;
  print(port);
  const std::chrono::milliseconds timeout =
      std::max(kLeastTimeout, std::chrono::milliseconds(number("HORA_DOCTOR_TIMEOUT_MS")));
  // The examination takes seconds; meanwhile the main thread answers clocks and probes.
  std::thread examination([deep, timeout] {
    Json machine;
    machine["machine"] = hora::doctor::machine_facts(variable("HORA_DOCTOR_CACHE"));
    machine["leftovers"] = hora::doctor::leftovers();
    print(machine);
    // 0: the runtime does not belong to the job.
    const int ranks = number("HORA_DOCTOR_RANKS");
    std::future<Json> runtime;
    if (ranks > 0) {
      runtime = std::async(std::launch::async,
                           [=] { return hora::doctor::runtime_trials(ranks, timeout); });
    }
    Json software;
    software["software"] = hora::doctor::software_facts(deep, deep ? kDeepTimeout : timeout);
    print(software);
    const Json& python = software["software"]["python"];
    Json selftests;
    selftests["selftests"] =
        hora::doctor::gpu_selftests(python.value("nccl", Json::array()), timeout);
    if (ranks > 0) selftests["selftests"].update(runtime.get());
    print(selftests);
  });
  // The end of input means that the launcher has finished or is gone.
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "clock") print(answer_clock());
    if (what == "probe") print(answer_probe(words));
    if (what == "world") print(answer_world(words, timeout));
  }
  examination.join();
  return 0;
}
