// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/peer_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"

// Contents come out as they went in, and nothing comes out of a stream that was tampered with.

using namespace hora;
using namespace hora::launcher;

namespace {

const std::string kKey = "0123456789abcdef0123456789abcdef";
constexpr std::size_t kSealedBlock = kSealedPiece + kSealOverhead;

std::string contents_of(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

std::string seal(const std::string& contents, std::size_t most, const std::string& key = kKey) {
  DeliverySealer sealer(key);
  std::string sealed;
  for (;;) {
    const std::string some = sealer.next(contents, most);
    if (some.empty()) return sealed;
    sealed += some;
  }
}

// Whether a stream for contents of this size opens.
bool opens(const std::string& sealed, std::size_t size, const std::string& key = kKey) {
  DeliveryOpener opener(key, size);
  std::string contents;
  return opener.feed(sealed, contents).has_value();
}

}  // namespace

TEST_CASE("seal: contents of any size come out as they went in, whatever the cuts") {
  for (const std::size_t size :
       {std::size_t{1}, kSealedPiece - 1, kSealedPiece, kSealedPiece + 1, 3 * kSealedPiece + 17}) {
    const std::string contents = contents_of(size);
    for (const std::size_t most : {std::size_t{1}, kSealedPiece + 1, 10 * kSealedPiece}) {
      const std::string sealed = seal(contents, most);
      REQUIRE(sealed.size() == sealed_size(size));
      for (const std::size_t step : {std::size_t{7}, kSealHeader, kSealedBlock, sealed.size()}) {
        DeliveryOpener opener(kKey, size);
        std::string opened;
        for (std::size_t at = 0; at < sealed.size(); at += step) {
          REQUIRE(opener.missing() == sealed.size() - at);
          REQUIRE(opener.feed(std::string_view(sealed).substr(at, step), opened));
        }
        CHECK(opener.missing() == 0);
        CHECK(opened == contents);
      }
    }
  }
}

TEST_CASE("seal: two streams of the same contents and key differ") {
  const std::string contents = contents_of(100);
  CHECK(seal(contents, 1) != seal(contents, 1));
}

TEST_CASE("seal: a change of any kind is found") {
  const std::size_t size = 3 * kSealedPiece;
  const std::string sealed = seal(contents_of(size), size);
  REQUIRE(opens(sealed, size));
  // In the header, a tag, the contents, an authenticator, the last byte.
  for (const std::size_t at : {std::size_t{0}, kSealHeader, kSealHeader + 1000,
                               kSealHeader + kSealedBlock - 1, sealed.size() - 1}) {
    std::string changed = sealed;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    CHECK_FALSE(opens(changed, size));
  }
  std::string swapped = sealed;
  std::swap_ranges(swapped.begin() + kSealHeader, swapped.begin() + kSealHeader + kSealedBlock,
                   swapped.begin() + kSealHeader + kSealedBlock);
  CHECK_FALSE(opens(swapped, size));
  // A piece less or a piece more than was announced to the receiver, at a cut between pieces.
  CHECK_FALSE(opens(sealed.substr(0, sealed_size(2 * kSealedPiece)), 2 * kSealedPiece));
  std::string longer = contents_of(4 * kSealedPiece);
  CHECK_FALSE(opens(sealed + seal(longer, 1).substr(kSealHeader, kSealedBlock), longer.size()));
  CHECK_FALSE(opens(sealed, size, "0123456789abcdef0123456789abcdeF"));
}

TEST_CASE("seal: nothing of a piece that does not open is given") {
  std::string sealed = seal(contents_of(2 * kSealedPiece), 1);
  sealed.back() = static_cast<char>(sealed.back() ^ 1);
  DeliveryOpener opener(kKey, 2 * kSealedPiece);
  std::string opened;
  CHECK_FALSE(opener.feed(sealed, opened));
  CHECK(opened == contents_of(kSealedPiece));
}

// What unauthenticated and other peers cost a host: a conversation that asks for two words, "AAAA"
// and then "BB", and serves those that send them.

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

const std::string kServed(3'000'000, 's');  // more than sockets hold

class Talk : public PeerTalk {
 public:
  explicit Talk(const PeerServer& server) : server_(server) {}
  std::size_t awaited() const override { return greeted_ ? 2 : 4; }
  Verdict receive(int fd, std::string_view message) override {
    if (message != (greeted_ ? "BB" : "AAAA")) return Verdict::kGoes;
    if (greeted_) return server_.has_room() ? Verdict::kIsServed : Verdict::kGoes;
    greeted_ = true;
    return ::send(fd, "?", 1, MSG_NOSIGNAL) == 1 ? Verdict::kMayGoOn : Verdict::kGoes;
  }
  ssize_t send_some(int fd) override {
    const ssize_t sent =
        ::send(fd, kServed.data() + sent_, std::min(kServed.size() - sent_, std::size_t{100'000}),
               MSG_NOSIGNAL);
    if (sent > 0) sent_ += static_cast<std::size_t>(sent);
    return sent;
  }

 private:
  const PeerServer& server_;
  bool greeted_ = false;
  std::size_t sent_ = 0;
};

class Serving {
 public:
  explicit Serving(PeerLimits limits) {
    server_ = PeerServer::create(*loop_, limits, [this] {
                return std::make_unique<Talk>(*server_);
              }).value();
    thread_ = std::thread([this] { REQUIRE(loop_->run()); });
  }
  ~Serving() {
    loop_->post([this] {
      server_.reset();
      loop_->stop();
    });
    thread_.join();
  }
  os::Fd connect() const {
    const auto port = static_cast<std::uint16_t>(server_->port());
    return net::connect_tcp({*parse_ip_address("127.0.0.1"), port}, Clock::now() + 20s).value();
  }

 private:
  std::unique_ptr<os::EventLoop> loop_ = std::move(*os::EventLoop::create());
  std::unique_ptr<PeerServer> server_;
  std::thread thread_;
};

void say(const os::Fd& fd, std::string_view words) {
  (void)net::send_all(fd.get(), words, Clock::now() + 20s);
}

// As many bytes, or fewer where the connection ends. None comes in 20 s: the test fails.
std::string receive(const os::Fd& fd, std::size_t size = 1 << 30) {
  std::string received;
  std::string chunk(65536, '\0');
  while (received.size() < size) {
    const auto got = net::receive_some(
        fd.get(), chunk.data(), std::min(chunk.size(), size - received.size()), Clock::now() + 20s);
    if (!got) REQUIRE(got.error().code != ErrorCode::kTimedOut);
    if (!got || *got == 0) return received;
    received.append(chunk, 0, *got);
  }
  return received;
}

// A peer of the job that is being served, and reads nothing yet.
os::Fd served_peer(const Serving& serving) {
  os::Fd peer = serving.connect();
  say(peer, "AAAABB");
  CHECK(receive(peer, 2) == "?s");
  return peer;
}

}  // namespace

TEST_CASE("a peer says its messages in any pieces, and gets everything") {
  const Serving serving({.pending = 8, .served = 8, .talk_timeout = 20s, .serve_timeout = 20s});
  const os::Fd at_once = serving.connect();
  say(at_once, "AAAABB");
  const os::Fd in_pieces = serving.connect();
  say(in_pieces, "AAA");
  say(in_pieces, "A");
  CHECK(receive(in_pieces, 1) == "?");
  say(in_pieces, "B");
  say(in_pieces, "B");
  ::shutdown(in_pieces.get(), SHUT_WR);
  CHECK(receive(in_pieces) == kServed);
  CHECK(receive(at_once) == "?" + kServed);
}

TEST_CASE("who says something else goes, at whatever message") {
  const Serving serving({.pending = 8, .served = 8, .talk_timeout = 20s, .serve_timeout = 20s});
  for (const std::string words : {"AAAB", "GET / HTTP/1.1"}) {
    const os::Fd pending = serving.connect();
    say(pending, words);
    CHECK(receive(pending).empty());
  }
  const os::Fd pending = serving.connect();
  say(pending, "AAAABA");
  CHECK(receive(pending, 1) == "?");
  CHECK(receive(pending).empty());
}

TEST_CASE("a new client replaces the oldest unauthenticated one, but no peer") {
  const Serving serving({.pending = 2, .served = 8, .talk_timeout = 60s, .serve_timeout = 60s});
  const os::Fd peer = served_peer(serving);
  std::vector<os::Fd> pending;
  for (int i = 0; i < 3; ++i) {
    pending.push_back(serving.connect());
    say(pending.back(), "AAAA");
    CHECK(receive(pending.back(), 1) == "?");
  }
  CHECK(receive(pending.front()).empty());
  say(pending[1], "BB");
  CHECK(receive(pending[1]) == kServed);
  CHECK(receive(peer).size() == kServed.size() - 1);
}

TEST_CASE("there is room for as many as the limit says, and again when one goes") {
  const Serving serving({.pending = 8, .served = 1, .talk_timeout = 60s, .serve_timeout = 60s});
  os::Fd peer = served_peer(serving);
  const os::Fd too_many = serving.connect();
  say(too_many, "AAAABB");
  CHECK(receive(too_many) == "?");
  CHECK(receive(peer).size() == kServed.size() - 1);
  CHECK(receive(served_peer(serving)).size() == kServed.size() - 1);
}

TEST_CASE("an unauthenticated client that is silent is closed, and a peer that reads nothing") {
  const Serving serving({.pending = 8, .served = 1, .talk_timeout = 1s, .serve_timeout = 1s});
  const os::Fd pending = serving.connect();
  say(pending, "AAAA");
  CHECK(receive(pending) == "?");
  const os::Fd idle = served_peer(serving);
  // Its place is free once it has been sent away.
  const Deadline deadline = Clock::now() + 20s;
  std::string received;
  while (received.size() <= 1 && Clock::now() < deadline) {
    const os::Fd next = serving.connect();
    say(next, "AAAABB");
    received = receive(next);
  }
  CHECK(received == "?" + kServed);
  CHECK(receive(idle).size() < kServed.size() - 1);
}
