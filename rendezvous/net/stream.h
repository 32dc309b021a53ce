// SPDX-License-Identifier: Apache-2.0
// A connection's bytes as its user sees them. Here they are the socket's own; rendezvous/tls puts
// an encrypted stream in between. No function blocks: the caller polls fd(). One thread at a time.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::net {

class Stream {
 public:
  // A reader must offer at least this much space, in bytes: then no received bytes stay where
  // poll() does not see them.
  static constexpr std::size_t kLeastRoom = 32 * 1024;

  explicit Stream(os::Fd fd) : fd_(std::move(fd)) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int fd() const { return fd_.get(); }

  // Like recv() and sendmsg() on a non-blocking socket; they never raise SIGPIPE.
  virtual ssize_t receive(char* buffer, std::size_t size);
  virtual ssize_t send(const iovec* parts, std::size_t count);
  // Ends the sending direction. False: the connection is gone.
  virtual bool shut_down_sending();

  // True when bytes that send() has taken, or the stream's own, wait for room in the socket: then
  // the caller has to wait until it is writable and call push(). push() returns false when the
  // connection is gone.
  virtual bool must_push() const { return false; }
  virtual bool push() { return true; }
  // True when a part of a handshake or message has arrived, but no whole one.
  virtual bool in_between() const { return false; }
  // Why a call failed with EPROTO, for a person.
  virtual std::string_view trouble() const { return {}; }

 private:
  os::Fd fd_;
};

// Makes the stream of an accepted connection.
using AcceptStream = std::function<std::unique_ptr<Stream>(os::Fd)>;
// Makes the stream of a new outgoing connection; it may talk to the peer until the deadline.
using ConnectStream = std::function<Result<std::unique_ptr<Stream>>(os::Fd, Deadline)>;

// Sends all of `bytes` or returns an error.
Status send_all(Stream& stream, std::string_view bytes, Deadline deadline);
// Receives at least one byte; 0 is the end of the stream.
Result<std::size_t> receive_some(Stream& stream, char* buffer, std::size_t size, Deadline deadline);

}  // namespace hora::net
