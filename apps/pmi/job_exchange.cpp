// SPDX-License-Identifier: Apache-2.0
#include "apps/pmi/job_exchange.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "launcher/protocol/frame.h"
#include "launcher/protocol/pmi_records.h"
#include "rendezvous/base/text.h"
#include "rendezvous/contract/worker_env.h"
#include "rendezvous/tls/tls_stream.h"

namespace hora::pmi {

// The PMI servers of a job exchange their ranks' data through the job's rendezvous.

namespace {

namespace env = rendezvous::env;
using std::chrono::seconds;

// The limit for one question, which is asked again for as long as it takes: the ranks of another
// host may start much later.
constexpr seconds kOnce{60};

std::string variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? "" : value;
}

template <typename T, typename Ask>
Result<T> ask_until_answered(const Ask& ask) {
  while (true) {
    Result<T> answer = ask(Clock::now() + kOnce);
    if (answer || answer.error().code != ErrorCode::kTimedOut) return answer;
  }
}

// The store has no empty values, so each one begins with a mark.
constexpr char kMark = '=';

}  // namespace

Result<Exchange> Exchange::from_environment() {
  Exchange exchange;
  exchange.host_ = variable(env::kRendezvousAddress);
  const auto port = parse_int<int>(variable(env::kRendezvousPort));
  if (exchange.host_.empty() || !port) {
    return make_error(ErrorCode::kUsage, std::string(env::kRendezvousAddress) + " and " +
                                             std::string(env::kRendezvousPort) +
                                             " do not name the job's rendezvous");
  }
  exchange.port_ = static_cast<std::uint16_t>(*port);
  exchange.token_ = variable(env::kRendezvousToken);
  exchange.tls_ = variable(env::kRendezvousTls);
  return exchange;
}

rendezvous::HttpStore Exchange::open() const {
  return rendezvous::HttpStore(
      {.host = host_, .port = port_, .token = token_, .make_stream = tls::pinned(tls_)});
}

Status Exchange::publish(const std::string& key, const std::string& data) const {
  rendezvous::HttpStore store = open();
  return store.set(key, kMark + data, Clock::now() + kOnce);
}

Result<std::string> Exchange::wait(const std::string& key) const {
  rendezvous::HttpStore store = open();
  auto answer =
      ask_until_answered<std::string>([&](Deadline deadline) { return store.wait(key, deadline); });
  if (!answer) return answer;
  return answer->substr(1);
}

// Hosts may gather at one place several times; the caller numbers the places.
Result<std::string> Exchange::gather(const std::string& place, int own_host,
                                     const std::vector<int>& hosts, const std::string& data) const {
  rendezvous::HttpStore store = open();
  HORA_TRY(store.set(place + "/" + std::to_string(own_host), kMark + data, Clock::now() + kOnce));
  auto all = ask_until_answered<rendezvous::KvEntries>(
      [&](Deadline deadline) { return store.gather(place, hosts.size(), deadline); });
  if (!all) return std::move(all).error();
  std::string joined;
  for (const auto& [name, value] : *all) joined += value.substr(1);
  return joined;
}

// The helper's side of launcher/agent/pmi_server.cpp: one job on stdin, one reply and any number of
// records on stdout.

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
    auto job = launcher::decode<launcher::PmiJob>(message);
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

bool report_abort(int rank, int exit_code) {
  return write_all(launcher::u32_payload(static_cast<std::uint32_t>(rank)) +
                   launcher::u32_payload(static_cast<std::uint32_t>(exit_code)));
}

void report_used() {
  static std::atomic<bool> is_sent = false;
  if (is_sent.exchange(true)) return;
  static_cast<void>(
      write_all(launcher::u32_payload(launcher::kPmiUsed) + launcher::u32_payload(0)));
}

bool send_note(const std::string& text) {
  const std::string is_sent = text.substr(0, launcher::kMostPmiNote);
  return write_all(launcher::u32_payload(launcher::kPmiNote) +
                   launcher::u32_payload(static_cast<std::uint32_t>(is_sent.size())) + is_sent);
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
