// The store of a job, as a process of the job sees it: a client of kv_server.h over HTTP.
//
// Against Hora's own server a wait is one request that the server answers when the key is there,
// and a gather is one request for all keys. A plain server with Horovod's protocol knows neither:
// there a wait asks again and again, and a gather of n waits for the names "0" to "n-1" (it cannot
// list what it does not know). The server's first answer tells which it is. Requests that get no
// answer are repeated until the deadline, or until `patience` is over.
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
  net::ConnectStream make_stream = {};  // none: HTTP as it is
  // Put in front of every key, with a slash. A key "name" is /root/name at the server,
  // "place/name" is /root%2fplace/name. May be empty when every key has a place.
  std::string root = {};
  // How long a server that does not answer at all is tried.
  std::chrono::milliseconds patience{10'000};
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
  // The body of the first answer that is 200. `what` names what is waited for.
  Result<std::string> ask_until_there(const std::string& target, const std::string& what,
                                      Deadline deadline);
  Result<std::string> send_expecting(http::Method method, const std::string& target,
                                     std::string_view body, int status, Deadline deadline);
  // Makes sure that server_ is known.
  Status ask_what_server(Deadline deadline);
  // Between two questions of one wait; false when the deadline has passed.
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
