// SPDX-License-Identifier: Apache-2.0
// An allgather over PMI-1: each process puts its value under keys with its rank, a barrier makes
// all values visible, then each reads those of the others.
#include "collectives/runtime/pmi_bootstrap.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "collectives/runtime/pmi_client.h"
#include "collectives/runtime/text_allgather.h"
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

// Whether an MPI library in this process has begun to speak with the launcher, over the same
// descriptor. Such a library may be loaded for its own program alone, so each one is looked into.
bool mpi_has_begun() {
  std::vector<std::string> libraries;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* list) {
        static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
        return 0;
      },
      &libraries);
  return std::any_of(libraries.begin(), libraries.end(), [](const std::string& name) {
    if (name.substr(name.rfind('/') + 1).rfind("libmpi", 0) != 0) return false;
    void* const library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return false;
    auto* const initialized = reinterpret_cast<int (*)(int*)>(::dlsym(library, "MPI_Initialized"));
    int flag = 0;
    const bool has_begun = initialized != nullptr && initialized(&flag) == 0 && flag != 0;
    ::dlclose(library);
    return has_begun;
  });
}

// Starts once per process and finalises when the process exits normally. The launcher closes the
// connection then, so an MPI library that has it, too, says goodbye by itself.
class Pmi final : public TextAllgather {
 public:
  Pmi(int fd, int rank, int size) : client_(fd), rank_(rank), size_(size) {}
  ~Pmi() override {
    if (begun_ && !mpi_has_begun()) client_.finish();
  }
  Pmi(const Pmi&) = delete;
  Pmi& operator=(const Pmi&) = delete;

  int rank() const override { return rank_; }

  Result<std::vector<std::string>> allgather(std::string_view mine, Deadline deadline) override {
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
  return pmi().gather_notes(data, bytes, received, timeout_ms, error);
}

bool find_place(LauncherPlace* place, ErrorText& error) noexcept {
  // Processes of one job may start far apart on a busy cluster, and this is their first exchange.
  constexpr std::chrono::seconds kPatience{60};
  return pmi().find_place(place, kPatience, error);
}

constexpr LauncherBootstrap kLauncherBootstrap = {is_launched, find_place, allgather};

}  // namespace

const LauncherBootstrap& pmi_launcher_bootstrap() { return kLauncherBootstrap; }

}  // namespace hora::collectives
