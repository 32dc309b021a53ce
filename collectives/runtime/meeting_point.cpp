// SPDX-License-Identifier: Apache-2.0
// Rank 0 listens on the first of a few ports that is free. The others try all of them in turn until
// one answers to the token of this world: another world may have taken one, or another program.
#include "collectives/runtime/meeting_point.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collectives/control/oob_allgather.h"
#include "collectives/runtime/text_allgather.h"
#include "rendezvous/base/text.h"
#include "rendezvous/hosted_rendezvous.h"
#include "rendezvous/http_store.h"

namespace hora::collectives {

namespace {

// One attempt at one port. A host that is up answers at once or refuses.
constexpr std::chrono::milliseconds kOneAttempt{2'000};
constexpr std::chrono::milliseconds kBetweenRounds{100};
// How long rank 0 goes on serving for those who have not heard yet that ranks are missing.
constexpr std::chrono::seconds kFarewell{5};
// What rank 0 leaves in the place of a rank that has not come. No note of a rank is like it.
constexpr std::string_view kMissing = "\x01has not called init";

class MeetingPoint final : public TextAllgather {
 public:
  MeetingPoint(StartedWorld world, const Settings& settings)
      : world_(std::move(world)),
        token_(settings.rendezvous_token.empty() ? meeting_token(world_)
                                                 : settings.rendezvous_token),
        patience_(settings.start_timeout) {}

  int rank() const override { return world_.rank; }
  std::chrono::milliseconds patience() const { return patience_; }

  Result<std::vector<std::string>> allgather(std::string_view mine, Deadline deadline) override {
    if (!store_) HORA_TRY(arrive(deadline));
    // A key of its own for every exchange: a fast rank may be in the next one already.
    const std::string place = "hora_meeting_" + std::to_string(rounds_++);
    const auto size = static_cast<std::size_t>(world_.size);
    HORA_TRY(store_->set(place + "/" + std::to_string(world_.rank), mine, deadline));
    // Rank 0 serves, so it gives up first, and says so in the place of those who are missing.
    if (world_.rank > 0) deadline = std::max(deadline, Clock::now() + patience_) + kRankZeroFirst;
    auto all = store_->gather(place, size, deadline);
    if (!all && world_.rank == 0 && all.error().code == ErrorCode::kTimedOut) {
      HORA_TRY(mark_missing(place));
      all = store_->gather(place, size, Clock::now() + kOneAttempt);
    }
    if (!all) return all.error();
    std::vector<std::string> values(size);
    std::vector<std::string> missing;
    for (auto& [name, value] : *all) {
      const auto rank = static_cast<std::size_t>(std::atoi(name.c_str()));
      if (value == kMissing) missing.push_back(name);
      if (rank < size) values[rank] = std::move(value);
    }
    if (missing.empty()) return values;
    return give_up(place, std::move(missing));
  }

 private:
  Status arrive(Deadline deadline) { return world_.rank == 0 ? open() : reach(deadline); }

  // Serves for as long as the process lives: a rank that comes late, or initialises again, finds
  // it.
  Status open() {
    Error last = make_error(ErrorCode::kFailed, "there is no port to listen on");
    const bool on_one_host = world_.first_host == "127.0.0.1";
    for (const std::uint16_t port : meeting_ports(world_)) {
      // "::" takes IPv4 as well, where the kernel knows IPv6.
      for (const char* address : {on_one_host ? "127.0.0.1" : "::", "0.0.0.0"}) {
        auto opened = rendezvous::HostedRendezvous::start(
            std::vector<Endpoint>{{*parse_ip_address(address), port}}, token_);
        if (opened) {
          hosted_ = std::move(*opened);
          store_ = store("127.0.0.1", port);
          return Ok{};
        }
        last = std::move(opened).error();
        if (on_one_host) break;
      }
    }
    return last.with_context(world_.told() + ", which serves the others");
  }

  Status reach(Deadline deadline) {
    Error last = make_error(ErrorCode::kTimedOut, "nobody answers");
    do {
      for (const std::uint16_t port : meeting_ports(world_)) {
        auto candidate = store(world_.first_host, port);
        // The question is only whether it is the right one.
        const auto there =
            candidate->get("hora_meeting/here", std::min(deadline, Clock::now() + kOneAttempt));
        if (there) {
          store_ = std::move(candidate);
          return Ok{};
        }
        last = there.error();
      }
      std::this_thread::sleep_for(kBetweenRounds);
    } while (Clock::now() < deadline);
    return make_error(
        ErrorCode::kTimedOut,
        world_.told() + ", but rank 0 cannot be reached at " + world_.first_host + ": " +
            last.message +
            ". Has it called init, too? Otherwise start the program with horarun, or set "
            "MASTER_ADDR "
            "to an address of its host; HOROVOD_SIZE=1 makes this process a world of its own");
  }

  std::unique_ptr<rendezvous::HttpStore> store(const std::string& host, std::uint16_t port) const {
    rendezvous::HttpStoreOptions options;
    options.host = host;
    options.port = port;
    options.token = token_;
    options.patience = std::chrono::milliseconds(0);
    return std::make_unique<rendezvous::HttpStore>(std::move(options));
  }

  // Their own entries may still come, but nobody waits for them any more.
  Status mark_missing(const std::string& place) {
    const auto there = store_->gather(place, 0, Clock::now() + kOneAttempt);
    if (!there) return there.error();
    std::vector<bool> came(static_cast<std::size_t>(world_.size));
    for (const auto& [name, value] : *there) {
      const auto rank = static_cast<std::size_t>(std::atoi(name.c_str()));
      if (rank < came.size()) came[rank] = true;
    }
    rendezvous::KvEntries marks;
    for (std::size_t rank = 0; rank < came.size(); ++rank) {
      if (!came[rank]) marks.push_back({std::to_string(rank), std::string(kMissing)});
    }
    return store_->set_all(place, marks, Clock::now() + kOneAttempt);
  }

  // Rank 0's process may end with this error, and the server with it.
  Error give_up(const std::string& place, std::vector<std::string> missing) {
    const std::string heard = place + "_heard";
    if (world_.rank > 0) {
      static_cast<void>(
          store_->set(heard + "/" + std::to_string(world_.rank), "", Clock::now() + kOneAttempt));
    } else {
      const std::size_t others = static_cast<std::size_t>(world_.size) - 1 - missing.size();
      static_cast<void>(store_->gather(heard, others, Clock::now() + kFarewell));
    }
    std::sort(missing.begin(), missing.end(), [](const std::string& a, const std::string& b) {
      return std::atoi(a.c_str()) < std::atoi(b.c_str());
    });
    return make_error(ErrorCode::kTimedOut,
                      world_.told() +
                          (missing.size() == 1 ? ", but rank " + missing.front() + " has"
                                               : ", but ranks " + join(missing, ", ") + " have") +
                          " not called init" +
                          ". HOROVOD_SIZE=1 makes this process a world of its own");
  }

  StartedWorld world_;
  std::string token_;
  std::chrono::milliseconds patience_;
  std::unique_ptr<rendezvous::HostedRendezvous> hosted_;  // of rank 0
  std::unique_ptr<rendezvous::HttpStore> store_;
  int rounds_ = 0;
};

std::unique_ptr<MeetingPoint>& here() {
  static std::unique_ptr<MeetingPoint> self;
  return self;
}

bool is_launched(ErrorText&) noexcept { return here() != nullptr; }

bool allgather(const void* data, std::size_t bytes, void* received, std::int64_t timeout_ms,
               ErrorText& error) noexcept {
  return here()->gather_notes(data, bytes, received, timeout_ms, error);
}

bool find_place(LauncherPlace* place, ErrorText& error) noexcept {
  return here()->find_place(place, here()->patience(), error);
}

constexpr LauncherBootstrap kLauncherBootstrap = {is_launched, find_place, allgather};

}  // namespace

const LauncherBootstrap& meeting_point(const StartedWorld& world, const Settings& settings) {
  if (!here()) here() = std::make_unique<MeetingPoint>(world, settings);
  return kLauncherBootstrap;
}

}  // namespace hora::collectives
