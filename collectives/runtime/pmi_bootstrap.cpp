// SPDX-License-Identifier: Apache-2.0
// An allgather over PMI-1: each process puts its value under keys with its rank, a barrier makes
// all values visible, then each reads those of the others.
#include "collectives/runtime/pmi_bootstrap.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "collectives/runtime/launcher_place.h"
#include "collectives/runtime/machine_identity.h"
#include "collectives/runtime/pmi_client.h"
#include "rendezvous/base/hex.h"

namespace hora::collectives {

namespace {

// PMI-1 limits values to 1024 bytes without blanks, so values travel as hexadecimal digits in
// parts. '+' begins a part that another one follows, '.' the last one.
constexpr std::size_t kPart = 900;

int number(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? -1 : std::atoi(value);
}

// Starts once per process and finalises when the process exits normally.
class Pmi {
 public:
  Pmi(int fd, int rank, int size) : client_(fd), rank_(rank), size_(size) {}
  ~Pmi() {
    if (begun_) client_.finish();
  }
  Pmi(const Pmi&) = delete;
  Pmi& operator=(const Pmi&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  Result<std::vector<std::string>> allgather(std::string_view mine, Deadline deadline) {
    // Not in the constructor: a process that only asks is_launched() must leave the descriptor to
    // the program.
    if (!begun_) HORA_TRY(client_.begin(deadline));
    begun_ = true;
    // PMI-1 keys cannot be overwritten.
    const std::string round = "hora-" + std::to_string(rounds_++) + "-";
    const std::string digits = to_hex(mine);
    for (std::size_t part = 0; part == 0 || part * kPart < digits.size(); ++part) {
      const std::string text = digits.substr(part * kPart, kPart);
      const bool more = (part + 1) * kPart < digits.size();
      HORA_TRY(client_.put(key(round, rank_, part), (more ? "+" : ".") + text, deadline));
    }
    HORA_TRY(client_.barrier(deadline));
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) {
      std::string text;
      for (std::size_t part = 0;; ++part) {
        auto value = client_.get(key(round, rank, part), deadline);
        if (!value) return std::move(value).error();
        // Every part has at least its first character.
        if (value->empty())
          return make_error(ErrorCode::kFailed, "the launcher (PMI) lost a value");
        text += value->substr(1);
        if (value->front() == '.') break;
      }
      auto bytes = from_hex(text);
      if (!bytes) return make_error(ErrorCode::kFailed, "the launcher (PMI) changed a value");
      all.push_back(std::move(*bytes));
    }
    return all;
  }

 private:
  static std::string key(const std::string& round, int rank, std::size_t part) {
    return round + std::to_string(rank) + "-" + std::to_string(part);
  }

  PmiClient client_;
  int rank_;
  int size_;
  bool begun_ = false;
  int rounds_ = 0;
};

Pmi& pmi() {
  static Pmi self(number("PMI_FD"), number("PMI_RANK"), number("PMI_SIZE"));
  return self;
}

bool is_launched(ErrorText& text) noexcept {
  if (number("PMI_FD") >= 0 && number("PMI_RANK") >= 0 && number("PMI_SIZE") > 0) return true;
  return text.set("PMI_FD, PMI_RANK and PMI_SIZE are not all set");
}

bool allgather(const void* data, std::size_t bytes, void* received, std::int64_t timeout_ms,
               ErrorText& error) noexcept {
  try {
    std::string_view mine(static_cast<const char*>(data), bytes);
    // Notes are zero-terminated text in a fixed size; the padding would double the number of parts.
    while (!mine.empty() && mine.back() == '\0') mine.remove_suffix(1);
    const auto all = pmi().allgather(mine, Clock::now() + std::chrono::milliseconds(timeout_ms));
    if (!all) return error.set("%s", all.error().message.c_str());
    std::memset(received, 0, bytes * all->size());
    for (std::size_t rank = 0; rank < all->size(); ++rank) {
      const std::string& each = (*all)[rank];
      std::memcpy(static_cast<char*>(received) + rank * bytes, each.data(),
                  std::min(bytes, each.size()));
    }
    return true;
  } catch (const std::exception& failure) {
    return error.set("%s", failure.what());
  }
}

bool find_place(LauncherPlace* place, ErrorText& error) noexcept {
  try {
    // Processes of one job may start far apart on a busy cluster, and this is their first exchange.
    constexpr std::chrono::seconds kPatience{60};
    const auto machines = pmi().allgather(machine_identity(), Clock::now() + kPatience);
    if (!machines) return error.set("%s", machines.error().message.c_str());
    *place = place_among(*machines, pmi().rank());
    return true;
  } catch (const std::exception& failure) {
    return error.set("%s", failure.what());
  }
}

constexpr LauncherBootstrap kLauncherBootstrap = {is_launched, find_place, allgather};

}  // namespace

const LauncherBootstrap& pmi_launcher_bootstrap() { return kLauncherBootstrap; }

}  // namespace hora::collectives
