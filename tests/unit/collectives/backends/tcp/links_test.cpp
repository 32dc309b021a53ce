// SPDX-License-Identifier: Apache-2.0
// Ranks are threads here.
#include "collectives/backends/tcp/links.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "rendezvous/net/socket.h"
#include "tests/support/catch.h"
#include "tests/support/descriptor_limit.h"

using namespace hora;
using namespace hora::collectives;
using std::chrono::milliseconds;
using tcp::Links;

namespace {

std::atomic<int> refused_connects{0};  // this many from now on

constexpr milliseconds kTimeout{30'000};

struct Destroyer {
  void operator()(Links* links) const { links->destroy(); }
};
using LinksPtr = std::unique_ptr<Links, Destroyer>;

const IpAddress& loopback() {
  static const IpAddress address = *parse_ip_address("127.0.0.1");
  return address;
}

// Ranks that know each other's contacts, and have not met.
struct World {
  explicit World(int size, milliseconds timeout = kTimeout) {
    for (int rank = 0; rank < size; ++rank) {
      ranks.emplace_back(new Links(rank, timeout, false));
      auto contact = ranks.back()->listen(loopback());
      REQUIRE(contact);
      contacts.push_back(*contact);
    }
  }
  void learn() {
    for (const LinksPtr& each : ranks) each->learn(contacts);
  }
  // Runs `body` for each rank in a thread of its own; returns what each answers.
  std::vector<std::string> run(const std::function<std::string(int, Links&)>& body) {
    std::vector<std::future<std::string>> answers;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      answers.push_back(std::async(std::launch::async, [this, &body, rank] {
        return body(static_cast<int>(rank), *ranks[rank]);
      }));
    }
    std::vector<std::string> texts;
    for (auto& each : answers) texts.push_back(each.get());
    return texts;
  }

  std::vector<LinksPtr> ranks;
  std::vector<tcp::Contact> contacts;
};

std::string wait_for(Links& links, PeerLinks::Ticket ticket) {
  ErrorText error;
  return links.wait(ticket, error) ? "" : error.text;
}

std::string send(Links& links, int to, std::string text) {
  return wait_for(links, links.post_send(to, 7, text.data(), text.size()));
}

std::string receive(Links& links, int from, std::size_t bytes, std::string& text) {
  text.resize(bytes);
  return wait_for(links, links.post_receive(from, 7, text.data(), bytes));
}

os::Fd connect_to(const tcp::Contact& contact) {
  auto fd = net::connect_tcp(contact.where, Clock::now() + std::chrono::seconds(5));
  REQUIRE(fd);
  return std::move(*fd);
}

// What a rank says first on a connection.
std::string greeting(std::int64_t rank, const tcp::Key& key,
                     std::uint64_t magic = tcp::Greeting::kMagic) {
  const tcp::Greeting words{magic, rank, key};
  return {reinterpret_cast<const char*>(&words), sizeof words};
}

char byte_of(int from, int to, int message, std::size_t i) {
  return static_cast<char>(from * 31 + to * 17 + message * 7 + static_cast<int>(i % 251));
}

}  // namespace

TEST_CASE("tcp links: every message arrives whole, whatever is posted first") {
  for (const int size : {1, 2, 4}) {
    World world(size);
    world.learn();
    // The same on all ranks; some are of no bytes, some larger than all buffers of the kernel.
    std::mt19937 random(static_cast<unsigned>(size));
    std::vector<std::size_t> sizes;
    for (int i = 0; i < 12; ++i) sizes.push_back(i % 4 == 0 ? 0 : random() % 300'000);
    sizes.push_back(6'000'000);
    const auto texts = world.run([&](int rank, Links& links) -> std::string {
      std::mt19937 order(static_cast<unsigned>(100 + rank));
      struct Message {
        std::vector<char> bytes;
        PeerLinks::Ticket ticket = 0;
        int from = 0;
        int number = 0;
      };
      std::vector<Message> all;
      for (std::size_t number = 0; number < sizes.size(); ++number) {
        for (int peer = 0; peer < size; ++peer) {
          if (peer == rank) continue;
          const auto n = static_cast<int>(number);
          const bool first = order() % 2 == 0;
          for (const bool sends : {first, !first}) {
            Message message{std::vector<char>(sizes[number]), 0, sends ? rank : peer, n};
            if (sends) {
              for (std::size_t i = 0; i < message.bytes.size(); ++i) {
                message.bytes[i] = byte_of(rank, peer, n, i);
              }
            }
            message.ticket =
                sends
                    ? links.post_send(peer, number, message.bytes.data(), message.bytes.size())
                    : links.post_receive(peer, number, message.bytes.data(), message.bytes.size());
            all.push_back(std::move(message));
          }
        }
      }
      // In any order, too.
      std::shuffle(all.begin(), all.end(), order);
      for (const Message& each : all) {
        if (std::string why = wait_for(links, each.ticket); !why.empty()) return why;
        if (each.from == rank) continue;
        for (std::size_t i = 0; i < each.bytes.size(); ++i) {
          if (each.bytes[i] != byte_of(each.from, rank, each.number, i)) return "a wrong byte";
        }
      }
      return "";
    });
    for (const std::string& text : texts) CHECK(text == "");
  }
}

TEST_CASE("tcp links: all ranks meet, and neighbours alone") {
  for (const int size : {2, 3, 7}) {
    World world(size);
    world.learn();
    const auto texts = world.run([&](int rank, Links& links) -> std::string {
      std::vector<int> all;
      for (int peer = 0; peer < size; ++peer) {
        if (peer != rank) all.push_back(peer);
      }
      const Status neighbours = links.meet({(rank + 1) % size, (rank + size - 1) % size});
      if (!neighbours) return neighbours.error().message;
      const Status met = links.meet(all);
      return met ? "" : met.error().message;
    });
    for (const std::string& text : texts) CHECK(text == "");
  }
}

TEST_CASE("tcp links: clients without the key are refused, and do not keep ranks out") {
  World world(3);
  world.learn();
  std::vector<os::Fd> pending;
  const auto say = [&](std::string_view bytes) {
    pending.push_back(connect_to(world.contacts[0]));
    REQUIRE(net::send_all(pending.back().get(), bytes, Clock::now() + std::chrono::seconds(5)));
  };
  const tcp::Key& key = world.contacts[0].key;
  say(greeting(1, tcp::Key{}));  // another key
  for (const std::int64_t rank : {-1, 0, 3, 1 << 30}) say(greeting(rank, key));
  say(greeting(2, key, tcp::Greeting::kMagic + 1));
  say("GET / HTTP/1.1\r\nHost: rank-0\r\nAccept: */*\r\n\r\n");
  for (int i = 0; i < 200; ++i) pending.push_back(connect_to(world.contacts[0]));
  const auto texts = world.run([](int rank, Links& links) -> std::string {
    const Status met = links.meet({(rank + 1) % 3, (rank + 2) % 3});
    if (!met) return met.error().message;
    std::string text;
    const std::string why = rank == 0   ? receive(links, 2, 5, text)
                            : rank == 2 ? send(links, 0, "hello")
                                        : "";
    return why + (rank == 0 && text != "hello" ? "not from rank 2: " + text : "");
  });
  for (const std::string& text : texts) CHECK(text == "");
  // Each sees the end of its connection, but for the last ones, which may show a key yet.
  for (std::size_t i = 0; i < 7; ++i) {
    char nothing = 0;
    const auto got =
        net::receive_some(pending[i].get(), &nothing, 1, Clock::now() + std::chrono::seconds(5));
    CHECK((!got || *got == 0));
  }
}

TEST_CASE(
    "tcp links: a flood of silent clients does not evict a rank that has begun to send the key") {
  World world(2, milliseconds(10'000));
  world.learn();
  const std::string words = greeting(1, world.contacts[0].key);
  const Deadline deadline = Clock::now() + std::chrono::seconds(10);
  const os::Fd rank = connect_to(world.contacts[0]);
  REQUIRE(net::send_all(rank.get(), words.substr(0, 20), deadline));
  std::vector<os::Fd> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(connect_to(world.contacts[0]));
  auto met = std::async(std::launch::async, [&] { return world.ranks[0]->meet({1}); });
  // All but the last ones.
  for (std::size_t i = 0; i < 200; ++i) {
    char nothing = 0;
    const auto got = net::receive_some(flood[i].get(), &nothing, 1, deadline);
    CHECK((!got || *got == 0));
  }
  REQUIRE(net::send_all(rank.get(), words.substr(20), deadline));
  CHECK(met.get());
}

TEST_CASE(
    "tcp links: more ranks may connect to one at a time than unauthenticated clients are kept") {
  World world(100);
  world.learn();
  const Deadline deadline = Clock::now() + std::chrono::seconds(20);
  // Here all have connected before the first one shows the key.
  std::vector<os::Fd> ranks;
  for (std::size_t rank = 1; rank < world.contacts.size(); ++rank) {
    ranks.push_back(connect_to(world.contacts[0]));
  }
  const auto texts = world.run([&](int rank, Links& links) -> std::string {
    if (rank > 1) return "";
    std::string text;
    if (rank == 1) return send(links, 0, "all are in the queue");
    if (std::string why = receive(links, 1, 20, text); !why.empty()) return why;
    for (std::size_t each = 2; each < world.contacts.size(); ++each) {
      const std::string bytes = greeting(static_cast<std::int64_t>(each), world.contacts[0].key);
      if (!net::send_all(ranks[each - 1].get(), bytes, deadline)) return "turned away";
    }
    std::vector<int> others;
    for (int each = 2; each < 100; ++each) others.push_back(each);
    const Status met = links.meet(others);
    return met ? "" : met.error().message;
  });
  CHECK(texts[0] == "");
  CHECK(texts[1] == "");
}

TEST_CASE("tcp links: unauthenticated clients are closed when the descriptors run out") {
  World world(2);
  world.learn();
  std::vector<os::Fd> pending;
  for (int i = 0; i < 20; ++i) pending.push_back(connect_to(world.contacts[0]));
  // Begins to connect, which takes a descriptor.
  const std::string text = "hello";
  const PeerLinks::Ticket sent = world.ranks[1]->post_send(0, 7, text.data(), text.size());
  std::optional<test::DescriptorLimit> few(std::in_place, test::next_descriptor() + 4);
  std::string came;
  const auto texts = world.run([&](int rank, Links& links) {
    return rank == 0 ? receive(links, 1, text.size(), came) : wait_for(links, sent);
  });
  few.reset();
  for (const std::string& why : texts) CHECK(why == "");
  CHECK(came == text);
}

TEST_CASE("tcp links: there may be a connection to every rank, where the hard limit allows it") {
  constexpr std::size_t kRanks = 2000;
  const test::DescriptorLimit usual(1024);
  World world(1);
  world.ranks[0]->learn(std::vector<tcp::Contact>(kRanks, world.contacts[0]));
  rlimit now{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &now) == 0);
  CHECK(now.rlim_cur >= std::min<rlim_t>(kRanks, now.rlim_max));
}

TEST_CASE("tcp links: a second connection of a rank does not replace the first") {
  World world(2);
  world.learn();
  const auto meet = [](int rank, Links& links) -> std::string {
    const Status met = links.meet({1 - rank});
    return met ? "" : met.error().message;
  };
  for (const std::string& text : world.run(meet)) CHECK(text == "");
  const os::Fd second = connect_to(world.contacts[0]);
  const std::string bytes = greeting(1, world.contacts[0].key);
  REQUIRE(net::send_all(second.get(), bytes, Clock::now() + std::chrono::seconds(5)));
  std::string text;
  const auto texts = world.run([&](int rank, Links& links) {
    return rank == 0 ? receive(links, 1, 3, text) : send(links, 0, "one");
  });
  for (const std::string& why : texts) CHECK(why == "");
  CHECK(text == "one");
}

TEST_CASE("tcp links: a silent connection is kept alive") {
  World world(2);
  world.learn();
  const auto texts = world.run([&](int rank, Links& links) -> std::string {
    const Status met = links.meet({1 - rank});
    return met ? "" : met.error().message;
  });
  for (const std::string& text : texts) CHECK(text == "");
  // How many of this process's connections wait to send a probe, of all that /proc/net/tcp has:
  // "sl: local remote state queues timer retransmits user timeout inode ...", state 01 for
  // established and timer 02 for keepalive. Other processes may have the same port, and while
  // others come and go a line may be missing, or be there twice.
  const auto kept = [] {
    std::set<std::string> own;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code closed;
      own.insert(std::filesystem::read_symlink(entry.path(), closed).string());
    }
    std::set<std::string> ends;
    std::ifstream table("/proc/net/tcp");
    std::string line;
    while (std::getline(table, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >>
          timeout >> inode;
      const bool ours = own.count("socket:[" + inode + "]") > 0;
      if (ours && state == "01" && timer.starts_with("02:")) ends.insert(inode);
    }
    return ends.size();
  };
  // Another timer comes first while the greeting is not acknowledged.
  const Deadline deadline = Clock::now() + std::chrono::seconds(10);
  std::size_t ends = kept();
  for (; ends < 2 && Clock::now() < deadline; ends = kept()) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  CHECK(ends == 2);
}

TEST_CASE("tcp links: abort ends a wait, and everything after it") {
  World world(2);
  world.learn();
  std::string text;
  auto waiting =
      std::async(std::launch::async, [&] { return receive(*world.ranks[0], 1, 1'000'000, text); });
  CHECK(waiting.wait_for(milliseconds(50)) == std::future_status::timeout);
  world.ranks[0]->abort();
  CHECK(waiting.get() == "the job is ending");
  CHECK(send(*world.ranks[0], 1, "late") == "the job is ending");
}

TEST_CASE("tcp links: a wait for no transfer ends them all, and leaves their memory alone") {
  World world(2);
  world.learn();
  std::string text(5, '.');
  Links& own = *world.ranks[0];
  const PeerLinks::Ticket posted = own.post_receive(1, 7, text.data(), text.size());
  CHECK(wait_for(own, 0) == "all transfers were given up");
  CHECK(own.post_send(1, 7, text.data(), text.size()) == 0);
  CHECK(wait_for(own, posted) == "all transfers were given up");
  CHECK(text == ".....");
}

TEST_CASE("tcp links: the end of a rank is seen by those who wait for it") {
  World world(3);
  world.learn();
  const auto texts = world.run([&](int rank, Links& links) -> std::string {
    std::string text;
    if (rank == 1) {
      std::string why = send(links, 0, "last") + send(links, 2, "last");
      world.ranks[1].reset();
      return why;
    }
    // Everything before it is there.
    if (std::string why = receive(links, 1, 4, text); !why.empty()) return why;
    if (text != "last") return "not what was sent";
    return receive(links, 1, 4, text);
  });
  CHECK(texts[1] == "");
  for (const int rank : {0, 2}) {
    CHECK_THAT(texts[static_cast<std::size_t>(rank)],
               Contains("the connection to rank 1 has ended: "));
  }
}

TEST_CASE("tcp links: a message of another size than the receive ends the world") {
  World world(2);
  world.learn();
  std::string text;
  const auto texts = world.run([&](int rank, Links& links) {
    return rank == 0 ? receive(links, 1, 4, text) : send(links, 0, "five.");
  });
  CHECK(texts[0] == "the connection to rank 1 has ended: it sent 5 bytes, and 4 were due");
}

TEST_CASE("tcp links: a rank that cannot be reached is named") {
  World world(2, milliseconds(300));
  // Its queue is full, so the kernel does not answer.
  const os::Fd full(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage address{};
  const unsigned length = net::to_sockaddr(Endpoint{loopback(), 0}, address);
  REQUIRE(::bind(full.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(full.get(), 0) == 0);
  world.contacts[0].where = *net::local_endpoint(full.get());
  std::vector<os::Fd> queue;
  for (int i = 0; i < 3; ++i) {
    if (auto one = net::begin_connect_tcp(world.contacts[0].where, Clock::now())) {
      queue.push_back(std::move(*one));
    }
  }
  world.learn();
  SECTION("in the first operation with it") {
    CHECK_THAT(send(*world.ranks[1], 0, "hello"), Contains("rank 0 does not answer at 127.0.0.1:"));
  }
  SECTION("while the ranks meet") {
    const Status met = world.ranks[1]->meet({0});
    REQUIRE_FALSE(met);
    CHECK_THAT(met.error().message, Contains("rank 0"));
  }
  SECTION("no process listens there") {
    world.contacts[0].where.port = 1;
    world.ranks[1]->learn(world.contacts);
    CHECK_THAT(send(*world.ranks[1], 0, "hello"),
               Contains("rank 0: connecting to 127.0.0.1:1: Connection refused"));
  }
}

TEST_CASE("tcp links: a kernel without a route to spare is asked again, and not for long") {
  World world(2);
  world.learn();
  SECTION("it has one soon") {
    refused_connects = 3;
    std::string text;
    const auto texts = world.run([&](int rank, Links& links) {
      return rank == 0 ? receive(links, 1, 5, text) : send(links, 0, "hello");
    });
    CHECK(texts == std::vector<std::string>(2));
    CHECK(text == "hello");
  }
  SECTION("it has none: abort() could not end a longer wait") {
    refused_connects = 1'000'000;
    const auto begun = Clock::now();
    CHECK_THAT(send(*world.ranks[1], 0, "hello"), Contains("Resource temporarily unavailable"));
    refused_connects = 0;
    CHECK(Clock::now() - begun < kTimeout / 2);
  }
}

// Replaces the C library's, for all of this program.
extern "C" int connect(int fd, const sockaddr* address, socklen_t length) {
  if (refused_connects > 0 && --refused_connects >= 0) {
    errno = EAGAIN;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_connect, fd, address, length));
}
