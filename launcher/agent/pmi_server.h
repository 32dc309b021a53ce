// SPDX-License-Identifier: Apache-2.0
// The program that serves PMI to this host's ranks: hora-pmix of the bundle, which needs a library
// of the site that the agent, being static, cannot load; or hora-pmi1. It ends when its standard
// input does, so also with the agent, and first removes what ranks have registered for that. The
// owner reaps all children and reports it by reaped(). Single-threaded, on the loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "launcher/protocol/messages.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class PmiServer {
 public:
  struct Events {
    std::function<void(PmiReply)> on_ready;                 // once; without an error
    std::function<void(int rank, int exit_code)> on_abort;  // a rank waits to be ended
    std::function<void(std::string)> on_note;               // for people
    std::function<void(std::string)> on_failed;  // it could not serve, or has ended unasked
  };

  // `program`: its path. `environment`: null-terminated.
  static Result<std::unique_ptr<PmiServer>> start(os::EventLoop& loop, const std::string& program,
                                                  char* const* environment, const PmiJob& job,
                                                  Events events);
  // Kills and reaps it if it still runs.
  ~PmiServer();
  PmiServer(const PmiServer&) = delete;
  PmiServer& operator=(const PmiServer&) = delete;

  pid_t pid() const { return pid_; }  // -1: reaped
  // Whether a rank has used it until now.
  bool is_used();
  // The job no longer needs the server: it cleans up and ends.
  void end();
  // The owner has waited for the pid.
  void reaped(int status);

 private:
  PmiServer(os::EventLoop& loop, Events events) : loop_(loop), events_(std::move(events)) {}
  void read_reply();
  bool read_record();
  void read_complaints();
  void fail(std::string what);

  os::EventLoop& loop_;
  Events events_;
  pid_t pid_ = -1;
  os::Fd life_;        // its standard input
  os::Fd reply_;       // its standard output
  os::Fd complaints_;  // its standard error
  std::string received_;
  std::string last_words_;
  bool over_ = false;  // ready or failed, or asked to end: later events are ignored
  bool ready_ = false;
  bool used_ = false;
};

// A connection to the server at `socket` (PmiReply's) that speaks for the rank; invalid, with errno
// set, when there is none.
os::Fd connect_for_rank(const std::string& socket, int rank);

}  // namespace hora::launcher
