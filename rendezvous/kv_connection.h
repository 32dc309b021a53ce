// SPDX-License-Identifier: Apache-2.0
// One connection to the key-value server: bytes of a socket to requests, replies to bytes.
// Belongs to kv_server.cpp, which owns and watches it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/time.h"
#include "rendezvous/http/output_queue.h"
#include "rendezvous/http/reader.h"
#include "rendezvous/kv_server.h"
#include "rendezvous/kv_service.h"
#include "rendezvous/net/stream.h"

namespace hora::rendezvous {

// What all connections of a server share.
struct KvConnectionContext {
  KvService& service;
  const KvServerOptions& options;
  std::vector<char> scratch{};        // where sockets are read into, one at a time
  std::uint64_t receiving_bytes = 0;  // of bodies that are on their way
  Clock::time_point now{};            // of the event that is being handled
  std::string date{};                 // the Date field, of this second
};

class KvConnection {
 public:
  // The caller's next step for the connection. kClose: destroy it.
  enum class Fate { kKeep, kClose };

  KvConnection(std::unique_ptr<net::Stream> stream, const IpAddress& peer, KvService::ClientId id,
               KvConnectionContext& context);
  ~KvConnection();
  KvConnection(const KvConnection&) = delete;
  KvConnection& operator=(const KvConnection&) = delete;

  Fate on_events(std::uint32_t epoll_events);
  // The reply to the request that was parked.
  Fate on_ready(const KvReply& reply);
  // Closes, or answers 408, if it has been too slow.
  Fate on_sweep();

  // Its connection is needed by others: ends a parked request with 503, which says "ask again".
  Fate give_way();

  std::uint32_t wanted_events() const;  // for epoll
  // Between two requests, with nothing to do: may be closed without harm.
  bool idle() const;
  bool parked() const { return state_ == State::kParked; }
  // Has begun a handshake or a request, and is not yet authenticated.
  bool in_head() const { return state_ == State::kOpen && begun() && !reader_.head_done(); }
  // Has not shown yet that it may use the store, nor comes from an address that may.
  bool unauthenticated() const { return !known_; }
  Clock::time_point message_start() const { return message_start_; }
  Clock::time_point last_active() const { return last_active_; }
  int fd() const { return stream_->fd(); }
  KvService::ClientId id() const { return id_; }
  const IpAddress& peer() const { return peer_; }

  // The server's notes about the connection.
  struct ServerNotes {
    bool watched = false;  // by the event loop
    std::uint32_t watched_events = 0;
    bool among_unauthenticated = false;  // it is counted as one of them
  };
  ServerNotes notes;

 private:
  enum class State {
    kOpen,
    kParked,    // a request waits in the service; nothing is read meanwhile
    kClosing,   // the last reply is queued
    kDraining,  // it was sent; what the peer still sends is thrown away, so that its own bytes do
                // not make the kernel discard our reply
  };

  Fate read();
  Fate drain();
  enum class ReadState {
    kAll,   // only more bytes would help
    kTurn,  // there is more; others first
    kHeld,  // there may be more; replies have to leave first, or it is over
  };
  Fate process(std::string_view bytes);
  ReadState handle_requests(std::string_view& bytes);
  std::size_t room_after(std::size_t kept) const;
  void charge_chunked_body();
  void on_head();
  void on_request(bool last_of_its_bytes);
  void reply_to(const KvReply& reply, bool keep_alive);
  void refuse(int status);
  Fate flush();
  Fate close_after_reply();
  bool blocked() const;
  // Some of a message has come.
  bool begun() const { return reader_.started() || stream_->in_between(); }
  bool has_output() const { return !output_.empty() || stream_->must_push(); }
  void set_charge(std::uint64_t bytes);
  Clock::time_point request_deadline() const;

  std::unique_ptr<net::Stream> stream_;
  IpAddress peer_;
  KvService::ClientId id_;
  KvConnectionContext& context_;
  http::RequestReader reader_;
  http::OutputQueue output_;
  std::string unread_;     // received, not yet used
  bool has_more_ = false;  // of whole requests, perhaps, in there: they have their turn later
  State state_ = State::kOpen;
  // The form of the reply that the request asks for.
  struct ReplyForm {
    bool head_only = false;
    bool keep_alive = true;
    int minor_version = 1;
  };
  ReplyForm form_;
  bool input_ended_ = false;
  bool input_pending_ = false;  // seen while parked: stop watching for it
  bool known_ = false;
  std::uint64_t charge_ = 0;  // this connection's part of receiving_bytes
  std::uint64_t drained_bytes_ = 0;
  Clock::time_point message_start_{};
  Clock::time_point last_active_{};  // any byte in or out
};

}  // namespace hora::rendezvous
