// SPDX-License-Identifier: Apache-2.0
// The store of a job as one of its processes sees it: a client of kv_server.h over HTTP. With
// Hora's own server a wait is one request that the server answers when the key exists, and a gather
// is one request for all keys. A plain server with Horovod's protocol has neither: there a wait
// polls, and a gather of n waits for the names "0" to "n-1" (it cannot list unknown names). The
// server's first answer shows which kind it is. Requests without an answer are repeated until the
// deadline, or until `timeout` has passed.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <string>

#include "rendezvous/http/client.h"
#include "rendezvous/store.h"

namespace hora::rendezvous {

struct HttpStoreOptions {
  std::string host;
  std::uint16_t port = 0;
  std::string token;                    // empty: none
  net::ConnectStream make_stream = {};  // none: plain HTTP
  // Goes in front of every key, with a slash. A key "name" is /root/name at the server,
  // "place/name" is /root%2fplace/name. It may be empty when every key has a place.
  std::string root = {};
  // How long to retry a server that does not answer at all.
  std::chrono::milliseconds timeout{10'000};
};

class HttpStore final : public Store {
 public:
  explicit HttpStore(HttpStoreOptions options);

  Status set(std::string_view key, std::string_view value, Deadline deadline) override;
  Status set_all(std::string_view place, const KvEntries& entries, Deadline deadline) override;
  Result<std::optional<std::string>> get(std::string_view key, Deadline deadline) override;
  Result<std::string> wait(std::string_view key, Deadline deadline) override;
  Result<KvEntries> gather(std::string_view place, std::size_t count, Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;

  std::uint64_t requests_sent() const { return requests_sent_; }
  std::uint64_t connections_made() const { return client_.connections_made(); }

 private:
  enum class ServerKind { kUnknown, kHora, kPlain };

  Result<http::Response> send(http::Method method, const std::string& target, std::string_view body,
                              Deadline deadline);
  // Repeats the request until the status is 200 and returns the body. `what` names the awaited
  // thing.
  Result<std::string> ask_until_there(const std::string& target, const std::string& what,
                                      Deadline deadline);
  Result<std::string> send_expecting(http::Method method, const std::string& target,
                                     std::string_view body, int status, Deadline deadline);
  // Makes sure that server_ is known.
  Status ask_what_server(Deadline deadline);
  // Pauses between two requests of one wait; false when the deadline has passed.
  bool pause(int round, Deadline deadline);

  Result<std::string> value_target(std::string_view key) const;
  std::string scope_of(std::string_view place) const;
  Result<KvEntries> gather_by_names(std::string_view place, std::size_t count, Deadline deadline);

  HttpStoreOptions options_;
  http::Client client_;
  ServerKind server_ = ServerKind::kUnknown;
  std::minstd_rand jitter_;
  std::uint64_t requests_sent_ = 0;
};

}  // namespace hora::rendezvous
