// SPDX-License-Identifier: Apache-2.0
// The helper's side of launcher/agent/pmi_server.cpp: one job on stdin, one reply and any number of
// records on stdout.
#include "apps/pmi/job_pipe.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>

#include "launcher/protocol/frame.h"
#include "launcher/protocol/pmi_records.h"

namespace hora::pmi {

namespace {

constexpr std::size_t kMostJob = 64 << 20;

bool read_exactly(char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t got = ::read(STDIN_FILENO, bytes, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

bool read_message(std::string& message) {
  char head[4];
  if (!read_exactly(head, sizeof head)) return false;
  std::string_view front(head, sizeof head);
  const std::size_t length = *launcher::read_u32(front);
  if (length > kMostJob) return false;
  message.resize(length);
  return read_exactly(message.data(), length);
}

bool write_all(const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(STDOUT_FILENO, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

std::optional<launcher::PmiJob> read_job(const char* program) {
  std::string message;
  if (read_message(message)) {
    auto job = launcher::decode_pmi_job(message);
    const int hosts = job ? static_cast<int>(job->hosts.size()) : 0;
    // The own host must be in the list: the servers use it as an index.
    if (job && job->own_host >= 0 && job->own_host < hosts) return std::move(*job);
  }
  // A user who starts the helper by hand sends no job.
  std::fprintf(stderr, "%s: horarun --pmi starts it; it is of no use by hand\n", program);
  return std::nullopt;
}

bool write_reply(const launcher::PmiReply& reply) {
  const std::string message = encode(reply);
  return write_all(launcher::u32_payload(static_cast<std::uint32_t>(message.size())) + message);
}

bool tell_abort(int rank, int exit_code) {
  return write_all(launcher::u32_payload(static_cast<std::uint32_t>(rank)) +
                   launcher::u32_payload(static_cast<std::uint32_t>(exit_code)));
}

void tell_used() {
  static std::atomic<bool> told = false;
  if (told.exchange(true)) return;
  static_cast<void>(
      write_all(launcher::u32_payload(launcher::kPmiUsed) + launcher::u32_payload(0)));
}

bool tell_note(const std::string& text) {
  const std::string told = text.substr(0, launcher::kMostPmiNote);
  return write_all(launcher::u32_payload(launcher::kPmiNote) +
                   launcher::u32_payload(static_cast<std::uint32_t>(told.size())) + told);
}

std::optional<Exchange> exchange_of(const launcher::PmiJob& job, launcher::PmiReply& reply) {
  // A job on one host needs no exchange.
  if (job.hosts.size() < 2) return std::nullopt;
  auto made = Exchange::from_environment();
  if (made) return std::move(*made);
  reply.error = made.error().message;
  return std::nullopt;
}

}  // namespace hora::pmi
