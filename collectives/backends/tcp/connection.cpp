// SPDX-License-Identifier: Apache-2.0
// Numbers are in the machine's byte order: what is moved are raw tensor elements, so both ends have
// to agree on it anyway.
#include "collectives/backends/tcp/connection.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace hora::collectives::tcp {

void Connection::open(os::Fd socket, std::string greeting) {
  socket_ = std::move(socket);
  greeting_ = std::move(greeting);
  readable_ = writable_ = true;
}

// An end counts as readable and writable: the call that fails says how the connection has ended.
void Connection::note_events(std::uint32_t events) {
  constexpr std::uint32_t kEnd = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
  ends_ = ends_ || (events & kEnd) != 0;
  readable_ = readable_ || (events & (EPOLLIN | kEnd)) != 0;
  writable_ = writable_ || (events & (EPOLLOUT | kEnd)) != 0;
}

bool Connection::move() {
  if (!failure_.empty()) return false;
  // The transfers wait until both sides have come to use the connection.
  if (!is_open()) return true;
  return send_some() && receive_some();
}

bool Connection::send_some() {
  // Head and body go together, so that a small message is one packet.
  while (writable_ && !(greeting_.empty() && sends_.empty())) {
    iovec parts[3];
    int count = 0;
    if (!greeting_.empty()) parts[count++] = {greeting_.data(), greeting_.size()};
    Head head{};
    if (!sends_.empty()) {
      Transfer& first = *sends_.front();
      head = {first.tag, first.bytes};
      parts[count++] = {reinterpret_cast<char*>(&head) + head_sent_, sizeof head - head_sent_};
      parts[count++] = {first.data + first.moved, first.bytes - first.moved};
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<std::size_t>(count);
    const ssize_t bytes = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (bytes >= 0) {
      sent(static_cast<std::size_t>(bytes));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      writable_ = false;
    } else if (errno != EINTR) {
      return fail(std::generic_category().message(errno));
    }
  }
  return true;
}

// The kernel has taken this many bytes, in the order of the parts, and any part may be cut.
void Connection::sent(std::size_t count) {
  const std::size_t of_greeting = std::min(count, greeting_.size());
  greeting_.erase(0, of_greeting);
  count -= of_greeting;
  if (sends_.empty()) return;
  const std::size_t of_head = std::min(count, sizeof(Head) - head_sent_);
  head_sent_ += of_head;
  Transfer& first = *sends_.front();
  first.moved += count - of_head;
  if (head_sent_ < sizeof(Head) || first.moved < first.bytes) return;
  first.done = true;
  head_sent_ = 0;
  sends_.pop_front();
}

bool Connection::receive_some() {
  while (readable_ && !receives_.empty()) {
    if (head_here_ < sizeof head_) {
      if (!receive_into(reinterpret_cast<char*>(&head_), sizeof head_, head_here_)) return false;
      continue;
    }
    Transfer* const transfer = due();
    // Its bytes stay in the socket, which remains readable, until their destination is posted.
    if (transfer == nullptr) return true;
    // Both sides know the size, so a difference is a defect, and nothing may be written beyond it.
    if (transfer->bytes != head_.bytes) {
      return fail("it sent " + std::to_string(head_.bytes) + " bytes, and " +
                  std::to_string(transfer->bytes) + " were due");
    }
    if (transfer->moved < transfer->bytes &&
        !receive_into(transfer->data, transfer->bytes, transfer->moved)) {
      return false;
    }
    if (transfer->moved == transfer->bytes) finish(*transfer);
  }
  return true;
}

// `have` of `bytes` bytes are there.
bool Connection::receive_into(char* to, std::size_t bytes, std::size_t& have) {
  const ssize_t count = ::recv(socket_.get(), to + have, bytes - have, MSG_DONTWAIT);
  if (count > 0) {
    have += static_cast<std::size_t>(count);
    // The socket had no more, and says so when it has. That it ends, it has said before.
    if (have < bytes) readable_ = ends_;
  } else if (count == 0) {
    return fail("it was closed");
  } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
    readable_ = false;
  } else if (errno != EINTR) {
    return fail(std::generic_category().message(errno));
  }
  return true;
}

// The receive of the message whose head has arrived; null: it is not posted yet. Both sides post in
// the same order, so it is mostly the first.
Transfer* Connection::due() {
  const auto found = std::find_if(receives_.begin(), receives_.end(),
                                  [&](const Transfer* each) { return each->tag == head_.tag; });
  return found == receives_.end() ? nullptr : *found;
}

// The next bytes are the head of another message.
void Connection::finish(Transfer& receive) {
  receive.done = true;
  receives_.erase(std::find(receives_.begin(), receives_.end(), &receive));
  head_here_ = 0;
}

bool Connection::fail(std::string why) {
  failure_ = std::move(why);
  return false;
}

void Connection::forget_transfers() {
  sends_.clear();
  receives_.clear();
  // In the middle of a message, there is no way to go on.
  if (failure_.empty()) failure_ = "it was given up";
}

}  // namespace hora::collectives::tcp
