// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/output_queue.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "tests/support/catch.h"

using namespace hora;
using http::OutputQueue;

namespace {

// A peer that takes that many bytes and then no more.
class SlowStream final : public net::Stream {
 public:
  SlowStream() : Stream(os::Fd()) {}

  ssize_t send(const iovec* parts, std::size_t count) override {
    if (room == 0) {
      errno = EAGAIN;
      return -1;
    }
    std::size_t sent = 0;
    for (std::size_t i = 0; i < count && room > 0; ++i) {
      const std::size_t part = std::min(room, parts[i].iov_len);
      taken.append(static_cast<const char*>(parts[i].iov_base), part);
      room -= part;
      sent += part;
    }
    return static_cast<ssize_t>(sent);
  }

  std::size_t room = 0;
  std::string taken;
};

}  // namespace

TEST_CASE("output: what was sent is given back, be there always something left to send") {
  constexpr std::size_t kAnswer = 150;
  constexpr std::size_t kPending = 64 * 1024;
  OutputQueue queue;
  SlowStream peer;
  std::uint64_t sent = 0;
  std::size_t most_kept = 0;
  for (int i = 0; i < 200'000; ++i) {  // 30 MB, of which never more than kPending wait
    queue.tail().append(kAnswer, 'x');
    queue.note_appended();
    if (queue.pending() <= kPending) continue;
    peer.room = kAnswer;
    peer.taken.clear();
    REQUIRE(queue.flush(peer, sent) == OutputQueue::Flush::kBlocked);
    most_kept = std::max(most_kept, queue.tail().capacity());
  }
  CHECK(most_kept <= 4 * kPending);
}

TEST_CASE("output: the bytes come out as they went in, in whatever portions they are taken") {
  std::mt19937 random(GENERATE(1, 2, 3, 4, 5));
  OutputQueue queue;
  SlowStream peer;
  std::uint64_t sent = 0;
  std::string expected;
  std::size_t most_kept = 0;
  char next = 'a';
  for (int i = 0; i < 3'000; ++i) {
    const std::size_t head = 1 + random() % 400;
    const std::size_t body = random() % 3 == 0 ? random() % 20'000 : random() % 100;
    next = next == 'z' ? 'a' : static_cast<char>(next + 1);
    queue.tail().append(head, next);
    queue.note_appended();
    queue.append_value(std::make_shared<const std::string>(body, '0'));
    expected.append(head, next).append(body, '0');
    peer.room = random() % 8'000;
    queue.flush(peer, sent);
    most_kept = std::max(most_kept, queue.tail().capacity());
  }
  peer.room = expected.size();
  CHECK(queue.flush(peer, sent) == OutputQueue::Flush::kDone);
  CHECK(queue.empty());
  CHECK(sent == expected.size());
  CHECK((peer.taken == expected));
  CHECK(queue.tail().capacity() <= 16 * 1024);
}
