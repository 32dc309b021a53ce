// A connection's bytes as its user sees them. Here they are the socket's own; rendezvous/tls puts
// an encrypted stream between. Nothing here waits: the caller polls fd().
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
  // Who reads gives at least so much room: what was received does not stay behind, unseen by
  // poll().
  static constexpr std::size_t kLeastRoom = 32 * 1024;

  explicit Stream(os::Fd fd) : fd_(std::move(fd)) {}
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int fd() const { return fd_.get(); }

  // As recv() and sendmsg() of a socket that does not block; SIGPIPE is never raised.
  virtual ssize_t receive(char* buffer, std::size_t size);
  virtual ssize_t send(const iovec* parts, std::size_t count);
  // No more will be sent. False: the connection is gone.
  virtual bool shut_down_sending();

  // Bytes that send() took, or the stream's own, wait for room in the socket: it wants to be
  // written to, and push() to be called then. False: the connection is gone.
  virtual bool must_push() const { return false; }
  virtual bool push() { return true; }
  // Something has come, of a handshake or a message, and no whole one is there yet.
  virtual bool in_between() const { return false; }
  // Keys and buffers are kept for the peer: it costs more than its socket.
  virtual bool has_session() const { return false; }
  // What went wrong when a call failed with EPROTO; for a person.
  virtual std::string_view trouble() const { return {}; }

 private:
  os::Fd fd_;
};

// Makes the stream of a connection that was just accepted.
using AcceptStream = std::function<std::unique_ptr<Stream>(os::Fd)>;
// Makes the stream of one that was just made, and may talk to the peer until the deadline.
using ConnectStream = std::function<Result<std::unique_ptr<Stream>>(os::Fd, Deadline)>;

// All of `bytes`, or an error.
Status send_all(Stream& stream, std::string_view bytes, Deadline deadline);
// At least one byte; 0 is the end of the stream.
Result<std::size_t> receive_some(Stream& stream, char* buffer, std::size_t size, Deadline deadline);

}  // namespace hora::net
