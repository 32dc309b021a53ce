// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/pmi_bootstrap.h"

#include <dlfcn.h>
#include <link.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "collectives/runtime/callers_exchange.h"
#include "rendezvous/base/encoding.h"
#include "rendezvous/os/time_until.h"

namespace hora::collectives {

// The client side of PMI-1, a line protocol: "cmd=NAME key=value ...\n", one answer for each
// request.

namespace {

constexpr std::chrono::seconds kFarewellTimeout{5};

}  // namespace

std::map<std::string, std::string> parse_pmi_line(std::string_view line) {
  std::map<std::string, std::string> fields;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    const std::size_t equals = word.find('=');
    if (equals != std::string_view::npos) {
      fields.emplace(word.substr(0, equals), word.substr(equals + 1));
    }
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return fields;
}

Result<std::string> PmiClient::read_line(Deadline deadline) {
  while (true) {
    const std::size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd item{fd_, POLLIN, 0};
    const int ready = ::poll(&item, 1, os::milliseconds_until(deadline));
    if (ready < 0 && errno != EINTR) return errno_error(errno, "waiting for the launcher (PMI)");
    if (ready <= 0) {
      // poll() was capped or interrupted.
      if (Clock::now() < deadline) continue;
      return make_error(ErrorCode::kTimedOut,
                        "timed out waiting for the launcher (PMI): not all "
                        "processes have started");
    }
    char chunk[4096];
    const ssize_t count = ::read(fd_, chunk, sizeof chunk);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return errno_error(errno, "reading from the launcher (PMI)");
    if (count == 0)
      return make_error(ErrorCode::kFailed, "the launcher (PMI) closed the connection");
    unread_.append(chunk, static_cast<std::size_t>(count));
  }
}

Result<std::map<std::string, std::string>> PmiClient::ask(const std::string& line,
                                                          std::string_view answer,
                                                          Deadline deadline) {
  const std::string message = line + "\n";
  std::size_t sent = 0;
  while (sent < message.size()) {
    const ssize_t count = ::write(fd_, message.data() + sent, message.size() - sent);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_error(errno, "writing to the launcher (PMI)");
    sent += static_cast<std::size_t>(count);
  }
  auto reply = read_line(deadline);
  if (!reply) return std::move(reply).error();
  auto fields = parse_pmi_line(*reply);
  // A missing rc means success: not every answer has one.
  if (fields["cmd"] != answer || (fields.count("rc") != 0 && fields["rc"] != "0")) {
    return make_error(ErrorCode::kFailed, "the launcher (PMI) answers '" + *reply + "' to '" +
                                              line.substr(0, 100) + "'");
  }
  return fields;
}

Status PmiClient::begin(Deadline deadline) {
  HORA_TRY(ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline));
  auto name = ask("cmd=get_my_kvsname", "my_kvsname", deadline);
  if (!name) return std::move(name).error();
  kvs_ = (*name)["kvsname"];
  return Ok{};
}

Status PmiClient::put(const std::string& key, const std::string& value, Deadline deadline) {
  HORA_TRY(
      ask("cmd=put kvsname=" + kvs_ + " key=" + key + " value=" + value, "put_result", deadline));
  return Ok{};
}

Status PmiClient::barrier(Deadline deadline) {
  HORA_TRY(ask("cmd=barrier_in", "barrier_out", deadline));
  return Ok{};
}

Result<std::string> PmiClient::get(const std::string& key, Deadline deadline) {
  auto fields = ask("cmd=get kvsname=" + kvs_ + " key=" + key, "get_result", deadline);
  if (!fields) return std::move(fields).error();
  return (*fields)["value"];
}

void PmiClient::finish() {
  // The launcher may already have exited.
  // A process that ends without this counts as failed, and mpirun would end all others.
  static_cast<void>(ask("cmd=finalize", "finalize_ack", Clock::now() + kFarewellTimeout));
}

// An allgather over PMI-1: each process puts its value under keys with its rank, a barrier makes
// all values visible, then each reads those of the others.

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
  constexpr std::chrono::seconds kTimeout{60};
  return pmi().find_place(place, kTimeout, error);
}

constexpr LauncherBootstrap kLauncherBootstrap = {is_launched, find_place, allgather};

}  // namespace

const LauncherBootstrap& pmi_launcher_bootstrap() { return kLauncherBootstrap; }

}  // namespace hora::collectives
