// SPDX-License-Identifier: Apache-2.0
// The client side of PMI-1, a line protocol: "cmd=NAME key=value ...\n", one answer for each
// request.
#include "collectives/runtime/pmi_client.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rendezvous/os/time_until.h"

namespace hora::collectives {

namespace {

constexpr std::chrono::seconds kFarewellPatience{5};

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
  static_cast<void>(ask("cmd=finalize", "finalize_ack", Clock::now() + kFarewellPatience));
}

}  // namespace hora::collectives
