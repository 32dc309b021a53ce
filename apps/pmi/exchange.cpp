// SPDX-License-Identifier: Apache-2.0
// The PMI servers of a job exchange their ranks' data through the job's rendezvous.
#include "apps/pmi/exchange.h"

#include <chrono>
#include <cstdlib>

#include "rendezvous/base/text.h"
#include "rendezvous/contract/worker_env.h"
#include "rendezvous/tls/tls_stream.h"

namespace hora::pmi {

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

}  // namespace hora::pmi
