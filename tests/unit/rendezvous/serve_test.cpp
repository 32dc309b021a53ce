// SPDX-License-Identifier: Apache-2.0
// The server as a program of its own.
#include "rendezvous/serve.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <future>

#include "rendezvous/os/fd.h"
#include "tests/unit/rendezvous/server_fixture.h"

using namespace hora;
using namespace hora::rendezvous;
using namespace hora::rendezvous::testing;

namespace {

// serve_rendezvous() on a thread, to be ended by a signal to it.
class Serving {
 public:
  explicit Serving(ServeOptions options) {
    options.announce = [this](const std::vector<Endpoint>& addresses) {
      announced_.set_value(addresses);
    };
    thread_ = std::thread([this, options = std::move(options)]() mutable {
      status_ = serve_rendezvous(std::move(options));
    });
    auto addresses = announced_.get_future();
    REQUIRE(addresses.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    where_ = addresses.get();
  }
  ~Serving() {
    if (thread_.joinable()) (void)end(SIGTERM);
  }

  const std::vector<Endpoint>& where() const { return where_; }
  Status end(int signal) {
    ::pthread_kill(thread_.native_handle(), signal);
    thread_.join();
    return status_;
  }

 private:
  std::promise<std::vector<Endpoint>> announced_;
  std::vector<Endpoint> where_;
  Status status_ = make_error(ErrorCode::kFailed, "did not end");
  std::thread thread_;
};

int status_of(const Endpoint& where, const std::string& request) {
  RawClient client(where);
  client.send(request);
  return client.read_reply().first;
}

struct TokenFile {
  explicit TokenFile(std::string_view text) {
    std::string name = "/tmp/hora-token-XXXXXX";
    const os::Fd fd(::mkstemp(name.data()));
    REQUIRE(fd.valid());
    path = name;
    std::ofstream(path) << text;
  }
  ~TokenFile() { ::unlink(path.c_str()); }
  std::string path;
};

}  // namespace

TEST_CASE("it serves this machine until a signal, and then is gone") {
  for (const int signal : {SIGTERM, SIGINT}) {
    Serving serving({});
    REQUIRE(serving.where().size() == 1);
    const Endpoint where = serving.where().front();
    CHECK(where.address.is_loopback());
    CHECK(status_of(where, "PUT /s/k HTTP/1.1\r\nContent-Length: 1\r\n\r\nx") == 200);
    CHECK(serving.end(signal));
    auto gone = net::connect_tcp(where, soon());
    CHECK_FALSE(gone);
  }
}

TEST_CASE("with a token, being on this machine is not enough") {
  ServeOptions options;
  options.access.token = "secret";
  Serving serving(std::move(options));
  const Endpoint where = serving.where().front();
  CHECK(status_of(where, "GET /s/k HTTP/1.1\r\n\r\n") == 401);
  CHECK(status_of(where, "GET /s/k HTTP/1.1\r\nAuthorization: Bearer secret\r\n\r\n") == 404);
}

TEST_CASE("an address in use is an error at once") {
  Serving first({});
  ServeOptions options;
  options.server.addresses = first.where();
  const Status second = serve_rendezvous(std::move(options));
  REQUIRE_FALSE(second);
  CHECK(second.error().message.find(format_endpoint(first.where().front())) != std::string::npos);
}

TEST_CASE("token files") {
  CHECK(*read_token_file(TokenFile("  abc123 \r\nmore\n").path) == "abc123");
  CHECK(read_token_file(TokenFile("\nabc\n").path).error().code == ErrorCode::kUsage);
  CHECK(read_token_file(TokenFile("").path).error().code == ErrorCode::kUsage);
  CHECK(read_token_file(TokenFile("two words").path).error().code == ErrorCode::kUsage);
  const TokenFile open_to_all("abc");
  REQUIRE(::chmod(open_to_all.path.c_str(), 0644) == 0);
  CHECK(read_token_file(open_to_all.path).error().message.find("chmod 600") != std::string::npos);
  CHECK(read_token_file("/dev/zero").error().message.find("longer than 4096 bytes") !=
        std::string::npos);
  CHECK(read_token_file("/tmp").error().code == ErrorCode::kUsage);
  if (::geteuid() == 0) {
    const TokenFile of_another("abc");
    REQUIRE(::chown(of_another.path.c_str(), 54321, 0) == 0);
    CHECK(read_token_file(of_another.path).error().message.find("belongs to user 54321") !=
          std::string::npos);
  }
  const auto missing = read_token_file("/no/such/file");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == ErrorCode::kNotFound);
  CHECK(missing.error().message.find("'/no/such/file'") != std::string::npos);
}
