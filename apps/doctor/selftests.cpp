// SPDX-License-Identifier: Apache-2.0
// Decides which self-tests run, and in which environment; hora-selftest runs each one in a process
// of its own.
#include "selftests.h"

#include <unistd.h>

#include <algorithm>
#include <future>

#include "launcher/text/text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/contract/worker_env.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/random.h"
#include "rendezvous/serve.h"

namespace hora::doctor {

using Json = nlohmann::ordered_json;

namespace {

// For the test on one host.
constexpr int kMostRanks = 16;
constexpr std::size_t kMostCopies = 4;

// hora-selftest is next to this program in the bundle.
std::string program() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  std::string own(path, static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  own.resize(own.rfind('/') == std::string::npos ? 0 : own.rfind('/') + 1);
  return own + "hora-selftest";
}

// Variables that tune a job or belong to one must not affect a self-test.
const std::vector<std::string> kDropped = {"HOROVOD_",
                                           "HORA_BACKENDS",
                                           "HORA_TIMELINE",
                                           "HORA_SHM_",
                                           "HORA_DOCTOR_",
                                           "HORA_FLIGHT_RECORDER",
                                           "HORA_DETERMINISTIC",
                                           "OMPI_COMM_",
                                           "PMIX_",
                                           "PMI_"};

Json try_it(std::vector<std::string> words, Milliseconds timeout,
            const EnvironmentList& environment = {}) {
  words.insert(words.begin(), program());
  return selftest_result(ask(words, timeout, environment, kDropped), timeout);
}

// A rank's environment, as the agent would set it.
EnvironmentList seat_environment(const WorldSeat& seat, bool one_host, Milliseconds timeout) {
  rendezvous::RankPlace place;
  place.rank = seat.rank;
  place.size = seat.size;
  place.hostname = seat.host;
  place.local_rank = one_host ? seat.rank : 0;
  place.local_size = one_host ? seat.size : 1;
  place.cross_rank = one_host ? 0 : seat.rank;
  place.cross_size = one_host ? 1 : seat.size;
  place.host_index = place.cross_rank;
  rendezvous::RendezvousAddress meeting;
  meeting.job_id = seat.job;
  meeting.rendezvous_address = seat.address;
  meeting.rendezvous_port = seat.port;
  meeting.token = seat.token;
  meeting.controller = "gloo";
  if (!seat.interface.empty()) meeting.interfaces = {seat.interface};
  EnvironmentList list = rendezvous::host_environment(meeting);
  for (auto& variable : rendezvous::rank_environment(place)) list.push_back(std::move(variable));
  // Half the time limit, so that libhora itself can say which ranks it waited for, at the start and
  // again when the backends connect.
  const auto seconds = std::max<std::int64_t>(timeout.count() / 2000, 1);
  list.emplace_back(rendezvous::env::kGlooTimeoutSeconds, std::to_string(seconds));
  return list;
}

Json unreachable(const Error& error) {
  Json out;
  out["stage"] = "reaching the launcher";
  out["error"] = error.message;
  return out;
}

// Returns the first answer with an error, or else that of the first rank.
Json ranks_of_this_host(int ranks, const std::string& backends, Milliseconds timeout) {
  const std::string token = os::random_token();
  auto meeting = rendezvous::HostedRendezvous::start({*parse_ip_address("127.0.0.1")}, token);
  if (!meeting) {
    Json out;
    out["stage"] = "listening on 127.0.0.1";
    out["error"] = meeting.error().message;
    return out;
  }
  std::vector<std::future<Json>> running;
  const std::string job = os::random_token();
  for (int rank = 0; rank < ranks; ++rank) {
    WorldSeat seat{rank, ranks, "localhost", job, "127.0.0.1", token, "", 0};
    seat.port = (*meeting)->endpoints().front().port;
    EnvironmentList environment = seat_environment(seat, true, timeout);
    environment.emplace_back("HORA_BACKENDS", backends);
    running.push_back(std::async(std::launch::async, [environment, timeout] {
      return try_it({"library"}, timeout, environment);
    }));
  }
  Json out;
  for (auto& one : running) {
    Json answer = one.get();
    if (out.is_null() || (answer.contains("error") && !out.contains("error")))
      out = std::move(answer);
  }
  out["ranks"] = ranks;
  return out;
}

constexpr std::size_t kMostWords = 300;

std::string last_line(const std::string& text) {
  const std::string_view all = trim(text);
  const std::size_t feed = all.rfind('\n');
  return std::string(trim(all.substr(feed == all.npos ? 0 : feed)).substr(0, kMostWords));
}

// Returns an empty text if the process ended as it should.
std::string how_it_ended(const Answer& answer, bool answered, Milliseconds timeout) {
  if (answer.timed_out) {
    return "it did not end within " + std::to_string(timeout.count() / 1000) + " s";
  }
  if (answer.signal != 0) return "it was ended by " + launcher::signal_name(answer.signal);
  if (answered) return {};
  if (answer.exit_code == -1) return "it could not be started";
  const std::string words = last_line(answer.errors);
  return "it ended with code " + std::to_string(answer.exit_code) +
         (words.empty() ? "" : ": " + words);
}

}  // namespace

// MPI may take long to start, so it runs in parallel with the others.
Json runtime_trials(int ranks, Milliseconds timeout) {
  auto mpi = std::async(std::launch::async, [=] { return try_it({"backend", "mpi"}, timeout); });
  Json out;
  out["alone"] = try_it({"library"}, timeout);
  // If the library fails alone, several ranks fail for the same reason.
  if (!out["alone"].contains("error")) {
    out["shared_memory"] = ranks_of_this_host(std::clamp(ranks, 2, kMostRanks), "shm", timeout);
    out["tcp"] = ranks_of_this_host(2, "tcp", timeout);
  }
  out["mpi"] = mpi.get();
  return out;
}

Json gpu_selftests(const Json& copies, Milliseconds timeout) {
  auto driver = std::async(std::launch::async, [=] { return try_it({"driver"}, timeout); });
  std::vector<std::pair<std::string, std::future<Json>>> asked;
  // The loader's own copy first, then those of frameworks.
  std::vector<std::string> paths{"libnccl.so.2"};
  for (const Json& path : copies) {
    if (path.is_string() && paths.size() <= kMostCopies) paths.push_back(path.get<std::string>());
  }
  for (const std::string& path : paths) {
    asked.emplace_back(path, std::async(std::launch::async, [=] {
                         return try_it({"nccl", path}, timeout);
                       }));
  }
  Json out;
  out["driver"] = driver.get();
  out["nccl_copies"] = Json::array();
  std::string first;
  for (auto& [path, answer] : asked) {
    Json copy;
    copy["path"] = path;
    copy.update(answer.get());
    const bool works = copy.contains("version");
    const bool known =
        // Two names may lead to one file.
        std::any_of(out["nccl_copies"].begin(), out["nccl_copies"].end(),
                    [&](const Json& other) { return other["path"] == copy["path"]; });
    if (known) continue;
    // The loader usually finds none, because frameworks bring their own.
    if (!works && path == paths.front() && copy.value("stage", "") == "loading it" &&
        copy["error"].get<std::string>().find("No such file") != std::string::npos) {
      continue;
    }
    // Prefer a framework's copy if there is one.
    if (works) first = path;
    out["nccl_copies"].push_back(std::move(copy));
  }
  out["nccl"] = try_it({"backend", "nccl", first}, timeout);
  return out;
}

Json join_world(const WorldSeat& seat, Milliseconds timeout) {
  const auto address = parse_ip_address(seat.address);
  if (!address) return unreachable(address.error());
  // Ask for a connection first: libhora's error would not say that the launcher cannot be reached.
  const auto reached = net::connect_tcp({*address, static_cast<std::uint16_t>(seat.port)},
                                        Clock::now() + timeout / 2);
  if (!reached) return unreachable(reached.error());
  return try_it({"library"}, timeout, seat_environment(seat, false, timeout));
}

// Interprets the output of hora-selftest. The last stage shows what the library was doing when it
// crashed or hung.
Json selftest_result(const Answer& answer, Milliseconds timeout) {
  std::string stage;
  Json result;
  for (const std::string_view text : split(answer.output, '\n')) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;
    // Only the end follows the result, and it matters only if it does not come.
    if (line.contains("stage") && line["stage"].is_string() && !result.contains("error")) {
      stage = line["stage"].get<std::string>();
    }
    if (line.contains("result") && line["result"].is_object()) result = line["result"];
  }
  const std::string ended = how_it_ended(answer, result.is_object(), timeout);
  if (!result.is_object()) result = Json::object();
  // An error of its own says more than the way it ended.
  if (!ended.empty() && !result.contains("error")) result["error"] = ended;
  if (result.contains("error")) result["stage"] = stage;
  return result;
}

}  // namespace hora::doctor
