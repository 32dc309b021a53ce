// SPDX-License-Identifier: Apache-2.0
// Agents that pass a part of the runtime on to each other; sources that are dead, silent, slow or
// lie; clients without the key.
#include <signal.h>
#include <sys/socket.h>

#include <thread>

#include "launcher/protocol/delivery.h"
#include "launcher/store/peer_server.h"
#include "rendezvous/net/socket.h"
#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/agent/packing.h"

using namespace hora;
using namespace hora::launcher;
using namespace hora::test;
using namespace std::chrono_literals;

namespace {

const std::string kKey = "0123456789abcdef0123456789abcdef";

Endpoint here(int port) {
  return {*parse_ip_address("127.0.0.1"), static_cast<std::uint16_t>(port)};
}

// The frames of a part, as a launcher sends them.
struct Delivery {
  PackedBundle bundle = pack({{"bin/tool", "#!/bin/sh\necho tool runs\n"}, {"big", noise()}});
  std::string frames;
  std::string id;

  Delivery() {
    append_frame(frames, FrameType::kPart, encode(bundle.header));
    for (std::size_t at = 0; at < bundle.data.size(); at += 100'000) {
      append_frame(frames, FrameType::kData, std::string_view(bundle.data).substr(at, 100'000));
    }
    append_frame(frames, FrameType::kDataEnd, {});
    id = sha256_hex(frames);
  }
  // More than sockets hold.
  static std::string noise() {
    std::string bytes;
    std::uint32_t state = 1;
    while (bytes.size() < 16'000'000) {
      state = state * 1664525u + 1013904223u;
      bytes.push_back(static_cast<char>(state >> 24));
    }
    return bytes;
  }
  static const Delivery& get() {
    static const Delivery delivery;
    return delivery;
  }
};

// A host that lacks the part.
struct TestHost {
  TemporaryDirectory directory;
  AgentDriver agent{
      {"--cache", directory / "cache", "--parts", Delivery::get().bundle.header.hash}};

  TestHost() { CHECK(agent.hello().missing_parts.size() == 1); }

  DeliveryReport report() {
    return decode<DeliveryReport>(agent.wait_for(FrameType::kDelivered).payload).value();
  }
  // It is sent the part, to be kept. Returns its port.
  int keep() {
    agent.send(FrameType::kKeep, encode(KeepDelivery{Delivery::get().id, kKey}));
    send_part();
    const auto said = report();
    CHECK(said.here);
    CHECK(said.id == Delivery::get().id);
    return said.port;
  }
  void send_part() { send_bundle(agent, Delivery::get().bundle, 100'000); }
  DeliveryReport fetch(std::vector<DeliverySource> sources, int timeout_ms = 20'000,
                       const std::string& key = kKey) {
    const Delivery& wanted = Delivery::get();
    agent.send(FrameType::kFetch, encode(FetchDelivery{wanted.id, wanted.frames.size(), key,
                                                       std::move(sources), timeout_ms}));
    return report();
  }
  void run_tool() {
    auto order = make_order({"tool"});
    order.prepend_paths = {{"PATH", "@bundle@/bin"}};
    agent.run(order);
    CHECK(agent.output[{0, 1}] == "tool runs\n");
  }
};

DeliverySource at(int port) { return {"a", {"127.0.0.1"}, port}; }

// A source that proves what it is, and then sends what it likes. It is given what encrypts for
// this connection.
class OddSource {
 public:
  using Send = std::function<void(int fd, DeliverySealer& sealer)>;
  explicit OddSource(Send send) : send_(std::move(send)) {
    listener_ = net::listen_tcp(here(0)).value();
    port_ = net::local_endpoint(listener_.get())->port;
    thread_ = std::thread([this] { serve(); });
  }
  ~OddSource() { thread_.join(); }
  int port() const { return port_; }

 private:
  void serve() {
    const Deadline deadline = Clock::now() + 20s;
    if (!net::wait_readable(listener_.get(), deadline, "a peer")) return;
    auto accepted = net::accept_tcp(listener_.get());
    if (!accepted || !*accepted) return;
    const int fd = (*accepted)->fd.get();
    const std::string hello = read(fd, kDeliveryHello, deadline);
    const DeliveryTalk talk{hello.substr(kDeliveryMagic.size() + kDeliveryNonce),
                            hello.substr(kDeliveryMagic.size(), kDeliveryNonce),
                            std::string(kDeliveryNonce, 'n')};
    (void)net::send_all(fd, talk.serving_nonce + delivery_proof(kKey, DeliveryRole::kServing, talk),
                        deadline);
    if (read(fd, kDeliveryProof, deadline) != delivery_proof(kKey, DeliveryRole::kFetching, talk)) {
      return;
    }
    (void)net::send_all(fd, {&kDeliveryGo, 1}, deadline);
    DeliverySealer sealer(delivery_seal_key(kKey, talk));
    send_(fd, sealer);
  }
  static std::string read(int fd, std::size_t size, Deadline deadline) {
    std::string bytes(size, '\0');
    for (std::size_t have = 0; have < size;) {
      const auto got = net::receive_some(fd, bytes.data() + have, size - have, deadline);
      if (!got || *got == 0) return {};
      have += *got;
    }
    return bytes;
  }

  Send send_;
  os::Fd listener_;
  int port_ = 0;
  std::thread thread_;
};

// The received bytes, which may be fewer where the connection ends.
std::string read_from(int fd, std::size_t size, Deadline deadline) {
  std::string bytes(size, '\0');
  for (std::size_t have = 0; have < size;) {
    const auto got = net::receive_some(fd, bytes.data() + have, size - have, deadline);
    if (!got || *got == 0) return bytes.substr(0, have);
    have += *got;
  }
  return bytes;
}

// A host of the job that asks for the delivery and reads the first byte of the answer.
struct AskingPeer {
  os::Fd fd;
  DeliveryTalk talk{Delivery::get().id, std::string(kDeliveryNonce, 'm'), {}};
  std::string answer;

  AskingPeer(int port, Deadline deadline) : fd(net::connect_tcp(here(port), deadline).value()) {
    REQUIRE(net::send_all(fd.get(), std::string(kDeliveryMagic) + talk.fetching_nonce + talk.id,
                          deadline));
    talk.serving_nonce =
        read_from(fd.get(), kDeliveryNonce + kDeliveryProof, deadline).substr(0, kDeliveryNonce);
    REQUIRE(net::send_all(fd.get(), delivery_proof(kKey, DeliveryRole::kFetching, talk), deadline));
    answer = read_from(fd.get(), 1, deadline);
  }
};

// Everything that the agent sends to a client that sends this, until it closes.
std::string answer_to(int port, const std::string& said) {
  const Deadline deadline = Clock::now() + 20s;
  const auto fd = net::connect_tcp(here(port), deadline).value();
  REQUIRE(net::send_all(fd.get(), said, deadline));
  std::string received;
  char chunk[4096];
  while (true) {
    const auto got = net::receive_some(fd.get(), chunk, sizeof chunk, deadline);
    if (!got || *got == 0) return received;
    received.append(chunk, *got);
  }
}

}  // namespace

TEST_CASE("a part goes from host to host to host") {
  TestHost first;
  TestHost second;
  TestHost third;
  const int port = first.keep();
  REQUIRE(port > 0);
  const auto fetched = second.fetch({at(port)});
  CHECK(fetched.here);
  CHECK(fetched.refusals.empty());
  REQUIRE(fetched.port > 0);
  CHECK(third.fetch({at(fetched.port)}).here);
  third.run_tool();
  second.run_tool();
  first.run_tool();
}

TEST_CASE("a source that is not there leaves it to the next one, then to the launcher") {
  TestHost first;
  TestHost second;
  const int port = first.keep();
  const auto fetched = second.fetch({at(1), at(port)});
  CHECK(fetched.here);
  REQUIRE(fetched.refusals.size() == 1);
  CHECK(fetched.refusals[0] == "Connection refused");
  TestHost third;
  const auto failed = third.fetch({at(1), {"b", {}, 80}});
  CHECK_FALSE(failed.here);
  CHECK(failed.port == 0);
  REQUIRE(failed.refusals.size() == 2);
  CHECK(failed.refusals[1] == "no address is known");
  CHECK(third.keep() > 0);
  third.run_tool();
}

TEST_CASE("of several addresses the one counts that leads to the source") {
  TestHost first;
  TestHost second;
  const int port = first.keep();
  // 192.0.2.1 is for documentation: no machine has it.
  CHECK(second.fetch({{"a", {"192.0.2.1", "no address", "::1", "127.0.0.1"}, port}}).here);
}

TEST_CASE("what has another hash is not used") {
  std::string wrong = Delivery::get().frames;
  wrong[wrong.size() / 2] = static_cast<char>(wrong[wrong.size() / 2] ^ 1);
  const OddSource liar([&wrong](int fd, DeliverySealer& sealer) {
    (void)net::send_all(fd, sealer.next(wrong, wrong.size()), Clock::now() + 20s);
  });
  TestHost host;
  const auto report = host.fetch({at(liar.port())});
  CHECK_FALSE(report.here);
  REQUIRE(report.refusals.size() == 1);
  CHECK(report.refusals[0] == "what it sent has another SHA-256");
  host.send_part();
  host.run_tool();
}

TEST_CASE("what was changed on the way is not used, however right its source") {
  const std::string& frames = Delivery::get().frames;
  const OddSource source([&frames](int fd, DeliverySealer& sealer) {
    std::string sealed = sealer.next(frames, frames.size());
    sealed[sealed.size() / 2] = static_cast<char>(sealed[sealed.size() / 2] ^ 1);
    (void)net::send_all(fd, sealed, Clock::now() + 20s);
  });
  TestHost host;
  const auto report = host.fetch({at(source.port())});
  CHECK_FALSE(report.here);
  REQUIRE(report.refusals.size() == 1);
  CHECK(report.refusals[0] == "what it sent was changed on the way");
  host.send_part();
  host.run_tool();
}

TEST_CASE("a source that stops, falls silent or is slow is left") {
  const std::string& frames = Delivery::get().frames;
  // Whole pieces, for what has come of the next one cannot be used.
  const std::size_t half = 100 * kSealedPiece;
  const auto send_half = [&](int fd, DeliverySealer& sealer) {
    (void)net::send_all(fd, sealer.next(frames, half), Clock::now() + 20s);
  };
  SECTION("stops") {
    const OddSource source(send_half);
    TestHost host;
    const auto report = host.fetch({at(source.port())});
    REQUIRE(report.refusals.size() == 1);
    CHECK(report.refusals[0] == "it stopped after " + std::to_string(half) + " of " +
                                    std::to_string(frames.size()) + " bytes");
  }
  SECTION("is silent") {
    const OddSource source([&](int fd, DeliverySealer& sealer) {
      send_half(fd, sealer);
      (void)net::wait_readable(fd, Clock::now() + 20s, "the peer's end");
    });
    TestHost host;
    const auto report = host.fetch({at(source.port())});
    REQUIRE(report.refusals.size() == 1);
    CHECK(report.refusals[0] == "it fell silent after " + std::to_string(half) + " bytes");
  }
  SECTION("is slow") {
    const OddSource source([&frames](int fd, DeliverySealer&) {
      for (const char byte : frames) {
        if (!net::send_all(fd, {&byte, 1}, Clock::now() + 20s)) return;
        if (net::wait_readable(fd, Clock::now() + 50ms, "the peer's end")) return;
      }
    });
    TestHost host;
    const auto report = host.fetch({at(source.port())}, 700);
    REQUIRE(report.refusals.size() == 1);
    CHECK(report.refusals[0].find("it is too slow: ") == 0);
  }
}

TEST_CASE("a source that is killed while it serves") {
  TestHost first;
  TestHost second;
  const int port = first.keep();
  ::kill(first.agent.agent(), SIGSTOP);  // it accepts in the kernel, and says nothing
  const auto report = second.fetch({at(port)});
  CHECK_FALSE(report.here);
  REQUIRE(report.refusals.size() == 1);
  CHECK(report.refusals[0] == "it cannot be reached in 2000 ms");
  first.agent.kill_both();
  CHECK(second.fetch({at(port)}).refusals == std::vector<std::string>{"Connection refused"});
  second.send_part();
  second.run_tool();
}

TEST_CASE("without the key a host neither serves nor fetches parts") {
  TestHost first;
  TestHost second;
  const int port = first.keep();
  const auto report = second.fetch({at(port)}, 20'000, "another key");
  CHECK_FALSE(report.here);
  REQUIRE(report.refusals.size() == 1);
  CHECK(report.refusals[0] == "another process answers there");

  const std::string nonce(kDeliveryNonce, 'x');
  const std::string hello = std::string(kDeliveryMagic) + nonce + Delivery::get().id;
  CHECK(answer_to(port, std::string(kDeliveryHello, 'G')).empty());
  CHECK(
      answer_to(port, std::string(kDeliveryMagic) + nonce + std::string(kDeliveryId, '0')).empty());
  // A nonce and a proof, followed by no byte of the part.
  CHECK(answer_to(port, hello + std::string(kDeliveryProof, 'p')).size() ==
        kDeliveryNonce + kDeliveryProof);
  // Its own proof, sent back.
  const Deadline deadline = Clock::now() + 20s;
  const auto fd = net::connect_tcp(here(port), deadline).value();
  REQUIRE(net::send_all(fd.get(), hello, deadline));
  std::string received(kDeliveryNonce + kDeliveryProof, '\0');
  for (std::size_t have = 0; have < received.size();) {
    const auto got =
        net::receive_some(fd.get(), received.data() + have, received.size() - have, deadline);
    REQUIRE(got);
    REQUIRE(*got > 0);
    have += *got;
  }
  REQUIRE(net::send_all(fd.get(), received.substr(kDeliveryNonce), deadline));
  char byte = 0;
  const auto more = net::receive_some(fd.get(), &byte, 1, deadline);
  CHECK((!more || *more == 0));
}

TEST_CASE("what travels between hosts cannot be read on the way") {
  TestHost first;
  const int port = first.keep();
  const Deadline deadline = Clock::now() + 20s;
  const Delivery& wanted = Delivery::get();
  const AskingPeer peer(port, deadline);
  CHECK(peer.answer == std::string(1, kDeliveryGo));
  const std::string sealed = read_from(peer.fd.get(), sealed_size(wanted.frames.size()), deadline);
  // The header of the part names its files.
  CHECK(wanted.frames.find("bin/tool") != std::string::npos);
  CHECK(sealed.find("bin/tool") == std::string::npos);
  DeliveryOpener opener(delivery_seal_key(kKey, peer.talk), wanted.frames.size());
  std::string opened;
  CHECK(opener.feed(sealed, opened));
  CHECK(opened == wanted.frames);
}

TEST_CASE("silent clients do not keep a host of the job out") {
  TestHost first;
  const int port = first.keep();
  std::vector<os::Fd> pending;
  for (int i = 0; i < 200; ++i) {
    pending.push_back(net::connect_tcp(here(port), Clock::now() + 20s).value());
  }
  TestHost second;
  CHECK(second.fetch({at(port)}).here);
}

TEST_CASE("a source that serves as many as it can is asked again") {
  TestHost first;
  const int port = first.keep();
  const Deadline deadline = Clock::now() + 20s;
  // They do not read, so they are served until they close.
  std::vector<AskingPeer> served;
  for (std::size_t i = 0; i < kMostServed; ++i) {
    served.emplace_back(port, deadline);
    REQUIRE(served.back().answer == std::string(1, kDeliveryGo));
  }
  CHECK(AskingPeer(port, deadline).answer == std::string(1, kDeliveryLater));
  TestHost second;
  const Delivery& wanted = Delivery::get();
  second.agent.send(
      FrameType::kFetch,
      encode(FetchDelivery{wanted.id, wanted.frames.size(), kKey, {at(port)}, 20'000}));
  CHECK_THROWS(second.agent.wait_for(FrameType::kDelivered, Milliseconds(500)));
  served.clear();
  const auto report = second.report();
  CHECK(report.here);
  CHECK(report.refusals.empty());
}

TEST_CASE("a host fetches a few deliveries at a time, however many are announced") {
  const os::Fd listener = net::listen_tcp(here(0)).value();
  const int port = net::local_endpoint(listener.get())->port;
  TestHost host;
  std::string id = Delivery::get().id;
  for (std::size_t i = 0; i < kMostFetches + 2; ++i) {
    id[0] = static_cast<char>('0' + i);
    host.agent.send(FrameType::kFetch, encode(FetchDelivery{id, 9, kKey, {at(port)}, 20'000}));
  }
  std::vector<os::Fd> asked;
  const auto accept = [&](std::chrono::milliseconds timeout) {
    if (!net::wait_readable(listener.get(), Clock::now() + timeout, "a fetch")) return false;
    asked.push_back(std::move((*net::accept_tcp(listener.get()).value()).fd));
    return true;
  };
  for (std::size_t i = 0; i < kMostFetches; ++i) REQUIRE(accept(20s));
  CHECK_FALSE(accept(300ms));
  asked.pop_back();  // that source is of no use: the next delivery's turn
  CHECK(accept(20s));
  CHECK_FALSE(host.report().here);
}

TEST_CASE("no host listens after the launcher asked it to forget the delivery, nor after the end") {
  TestHost first;
  const int port = first.keep();
  CHECK(net::connect_tcp(here(port), Clock::now() + 20s));
  first.agent.send(FrameType::kForget);
  first.run_tool();  // frames are read in order
  CHECK_FALSE(net::connect_tcp(here(port), Clock::now() + 20s));

  TestHost second;
  const int other = second.keep();
  second.agent.close();
  REQUIRE(second.agent.reap_shim());
  CHECK_FALSE(net::connect_tcp(here(other), Clock::now() + 20s));
}

TEST_CASE("what was fetched waits for the end of the launcher's own delivery") {
  TestHost first;
  const int port = first.keep();
  TestHost second;
  const std::string content(300'000, 'c');
  const std::string packed = pack_bytes(content);
  ShipFile file{"data", content.size(), 0644, sha256_hex(packed)};
  second.agent.send(FrameType::kShipFile, encode(file));
  const Delivery& wanted = Delivery::get();
  second.agent.send(
      FrameType::kFetch,
      encode(FetchDelivery{wanted.id, wanted.frames.size(), kKey, {at(port)}, 20'000}));
  // Long enough for the part to come: then, as before, it is not unpacked.
  CHECK_THROWS(second.agent.wait_for(FrameType::kDelivered, Milliseconds(500)));
  second.agent.send(FrameType::kData, packed);
  second.agent.send(FrameType::kDataEnd);
  CHECK(second.report().here);
}

TEST_CASE("orders that no launcher gives") {
  const auto refusal = [](FrameType type, const std::string& payload, int times) {
    TestHost host;
    for (int i = 0; i < times; ++i) host.agent.send(type, payload);
    return decode<Failure>(host.agent.wait_for(FrameType::kFailure).payload).value().message;
  };
  const std::string id = Delivery::get().id;
  CHECK(refusal(FrameType::kKeep, encode(KeepDelivery{"x", kKey}), 1) ==
        "its agent received an id that is no SHA-256");
  CHECK(refusal(FrameType::kKeep, encode(KeepDelivery{id, kKey}), 2) ==
        "its agent received two orders to keep one delivery");
  CHECK(refusal(FrameType::kFetch, encode(FetchDelivery{id, 1ull << 40, kKey, {at(1)}, 1}), 1) ==
        "its agent received an order to fetch 1099511627776 bytes");
  CHECK(refusal(FrameType::kFetch, encode(FetchDelivery{id, 9, kKey, {{"a", {}, 1}}, 1}), 2) ==
        "its agent received two orders to fetch one delivery");
}
