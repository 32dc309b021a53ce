// SPDX-License-Identifier: Apache-2.0
// The place of an elastic worker. Its environment describes the epoch in which the process started;
// later epochs are kept here and take precedence. The environment itself is not changed: setenv()
// is not safe with other threads.
#include "collectives/runtime/elastic_world.h"

#include <map>
#include <mutex>
#include <utility>

#include "collectives/runtime/rank_location.h"
#include "collectives/runtime/settings.h"
#include "rendezvous/base/text.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/http_store.h"
#include "rendezvous/tls/tls_stream.h"

namespace hora::collectives {

namespace {

namespace env = rendezvous::env;

// Never destroyed: a thread that waits for a host update may outlive main().
struct Present {
  std::mutex mutex;
  std::map<std::string, std::string, std::less<>> variables;  // that differ from the environment's
  int host_updates = 0;                                       // received in this epoch
  std::optional<rendezvous::PeerOfEpoch> unreached;           // in this epoch
};
Present& present() {
  static Present& one = *new Present;
  return one;
}

int number_of(std::string_view name) {
  return parse_int<int>(elastic_variable(name).value_or("")).value_or(0);
}

rendezvous::HttpStore rendezvous_store() {
  rendezvous::HttpStoreOptions options;
  options.host = elastic_variable(env::kRendezvousAddress).value_or("");
  options.port = static_cast<std::uint16_t>(number_of(env::kRendezvousPort));
  options.token = elastic_variable(env::kRendezvousToken).value_or("");
  options.make_stream = tls::pinned(elastic_variable(env::kRendezvousTls).value_or(""));
  return rendezvous::HttpStore(std::move(options));
}

std::string key_of(const std::string& name) {
  return std::string(rendezvous::scope::kElasticPlace) + "/" + name;
}

void move_to(const rendezvous::ElasticPlace& place) {
  const std::lock_guard<std::mutex> lock(present().mutex);
  auto& variables = present().variables;
  for (auto& [name, value] : rendezvous::rank_environment(place.rank)) {
    // The launcher sends neither: the host of a process never changes.
    if (name != env::kHostname && name != env::kTorchGroupRank) variables[name] = value;
  }
  variables[std::string(env::kRound)] = std::to_string(place.epoch);
  if (!place.interface.empty()) variables[std::string(env::kGlooInterface)] = place.interface;
  present().host_updates = 0;
}

// Whatever comes of it, this process asks for its next place: without this the epochs go on as
// they do anyway.
void report_unreached(rendezvous::HttpStore& store, int epoch) {
  std::optional<rendezvous::PeerOfEpoch> peer;
  {
    const std::lock_guard<std::mutex> lock(present().mutex);
    peer = std::exchange(present().unreached, std::nullopt);
  }
  if (!peer) return;
  constexpr std::chrono::seconds kTimeout{10};
  static_cast<void>(store.set(key_of(rendezvous::unreached_key(epoch, number_of(env::kRank))),
                              rendezvous::unreached_text(*peer), Clock::now() + kTimeout));
}

}  // namespace

bool in_elastic_job() {
  const auto flag = process_variable(env::kElastic);
  return flag && *flag != "0" && !flag->empty() && process_variable(env::kWorker);
}

std::optional<std::string> elastic_variable(std::string_view name) {
  {
    const std::lock_guard<std::mutex> lock(present().mutex);
    const auto found = present().variables.find(name);
    if (found != present().variables.end()) return found->second;
  }
  return process_variable(name);
}

void note_unreached(const rendezvous::PeerOfEpoch& peer) {
  const std::lock_guard<std::mutex> lock(present().mutex);
  present().unreached = peer;
}

Result<bool> take_next_place() {
  rendezvous::PlaceQuestion question;
  question.worker = number_of(env::kWorker);
  question.epoch = number_of(env::kRound);
  question.knows_state = process_variable(env::kKnowsState) == std::optional<std::string>("1");
  auto store = rendezvous_store();
  report_unreached(store, question.epoch);
  // The launcher limits this time; if the launcher is gone, the agent ends this process.
  constexpr std::chrono::hours kAsLongAsItTakes{24 * 365};
  auto text = store.wait(key_of(rendezvous::place_key(question)), Clock::now() + kAsLongAsItTakes);
  if (!text) return std::move(text).error().with_context("waiting for the next epoch");
  auto place = rendezvous::decode_elastic_place(*text);
  if (!place) return std::move(place).error();
  if (!*place) return false;
  move_to(**place);
  return true;
}

Result<int> wait_host_update(std::chrono::milliseconds timeout) {
  const int epoch = number_of(env::kRound);
  int number = 0;
  {
    const std::lock_guard<std::mutex> lock(present().mutex);
    // Updates are numbered within an epoch, so none is lost between two calls.
    number = present().host_updates + 1;
  }
  auto store = rendezvous_store();
  auto text =
      store.wait(key_of(rendezvous::host_update_key(epoch, number)), Clock::now() + timeout);
  // Nothing has happened.
  if (!text && text.error().code == ErrorCode::kTimedOut) return 0;
  if (!text) return std::move(text).error().with_context("waiting for a host update");
  if (epoch != number_of(env::kRound)) return 0;  // of an epoch that is over
  const std::lock_guard<std::mutex> lock(present().mutex);
  present().host_updates = number;
  return parse_int<int>(*text).value_or(0);
}

}  // namespace hora::collectives
