// SPDX-License-Identifier: Apache-2.0
// Carries the launcher's stdin to the ranks that were promised it, and acknowledges what a rank's
// pipe has taken, so that the launcher reads no faster than the slowest of them. Owns the pipes.
// Never waits. Single-threaded, on the agent's loop.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "launcher/agent/launcher_link.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class InputFeeder {
 public:
  InputFeeder(os::EventLoop& loop, LauncherLink& link);
  ~InputFeeder();
  InputFeeder(const InputFeeder&) = delete;
  InputFeeder& operator=(const InputFeeder&) = delete;

  // The write end of a rank's standard input.
  Status add(int rank, os::Fd pipe);
  // Queues bytes. Bytes for a rank that has closed its input are acknowledged at once.
  void write(int rank, std::string_view bytes);
  // End of file, after the queued bytes.
  void end(int rank);
  // The rank's input is a terminal, which has this size now.
  void resize(int rank, int rows, int columns);
  // The rank has ended.
  void close(int rank);

 private:
  struct Feed {
    os::Fd pipe;
    std::string waiting;
    std::size_t position = 0;
    bool ending = false;
    bool watched = false;
  };
  void push(int rank, Feed& feed);
  void shut(int rank, Feed& feed);
  void watch(int rank, Feed& feed, bool wanted);
  void acknowledge(int rank, std::size_t bytes);

  os::EventLoop& loop_;
  LauncherLink& link_;
  std::map<int, Feed> feeds_;
};

}  // namespace hora::launcher
