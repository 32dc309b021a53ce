// SPDX-License-Identifier: Apache-2.0
// The agent's end of the byte stream to its launcher, never blocking, and whether the launcher
// still lives.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/protocol/messages.h"
#include "launcher/protocol/silence.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// The agent's end of the byte stream to its launcher: messages in, messages out, never blocking.
// Does not own the descriptors (standard input and output, as a rule); lives on the loop's thread.

class LauncherLink {
 public:
  struct Handlers {
    std::function<void(LauncherMessage)> on_message;
    // The launcher said what no launcher says, or out of turn: "a second order".
    std::function<void(std::string what)> on_violation;
    // The launcher is gone or talks nonsense; called once. Nothing can be sent afterwards.
    std::function<void(std::string why)> on_end;
  };

  LauncherLink(os::EventLoop& loop, int read_fd, int write_fd);
  ~LauncherLink();
  LauncherLink(const LauncherLink&) = delete;
  LauncherLink& operator=(const LauncherLink&) = delete;

  // Sends the magic and starts reading. An error when a descriptor is not a stream.
  Status open(Handlers handlers);

  // Cuts the message to its limits. Sent at the end of the loop's turn, with whatever else the turn
  // has to say: the launcher is woken once.
  template <Framed Message>
  void send(Message message) {
    turns_.note_sent(Message::kRule.type);
    queue(Message::kRule.type, encode(fit(std::move(message))));
  }
  // A line for the launcher's log. It takes kMostLogLines and no more: the last one says so.
  void log(LogLine line);
  // For output: frames are appended here without a copy.
  std::string& outgoing() { return out_; }
  void read_now();     // what has come already, without a turn of the loop
  void flush();        // now: in a turn that takes long
  void flush_later();  // at the end of the turn
  // What send() has and gets goes with what is flushed next, at the latest after this time. For a
  // launcher that does not wait for it.
  void hold_back(Milliseconds most);

  bool ended() const { return ended_; }
  // The launcher has closed its end, though what it said before may not have been read yet. A
  // system call.
  bool hung_up() const;
  bool all_sent() const { return out_.size() == out_position_; }
  // Called each time when nothing is left to send.
  void set_on_all_sent(std::function<void()> handler) { on_all_sent_ = std::move(handler); }

  Silence& silence() { return silence_; }

 private:
  void queue(FrameType type, std::string_view payload);
  void end(std::string why);
  void want_write(bool wanted);
  void end_hold();

  os::EventLoop& loop_;
  int read_fd_;
  int write_fd_;
  Handlers handlers_;
  std::function<void()> on_all_sent_;
  FrameReader frames_;
  Turns turns_;
  std::string out_;
  std::size_t out_position_ = 0;
  std::size_t log_lines_ = 0;
  bool watching_read_ = false;
  bool watching_write_ = false;
  bool ended_ = false;
  bool flush_deferred_ = false;
  os::EventLoop::TimerId held_ = 0;  // 0: nothing is held back
  Silence silence_;
};

// Whether the launcher still lives, as far as an agent can know: each side sends heartbeats, and an
// agent that receives nothing for the time of the lease treats its launcher as lost and ends the
// job. Before the order the lease is a fixed one, since the job's own comes with the order. While
// the launcher is suspended (Ctrl-Z) the lease is long. A launcher on this machine whose process is
// busy may be silent: it gets no processor time, or waits for a disk. Single-threaded, on the
// agent's loop.

class LauncherLease {
 public:
  struct Options {
    int launcher = 0;                 // its process, where it is on this machine; 0: elsewhere
    Milliseconds suspended_lease{0};  // while the launcher is suspended
  };
  // `on_lost` is called once the lease has passed, again with each further heartbeat until stop().
  LauncherLease(os::EventLoop& loop, LauncherLink& link, Options options,
                std::function<void()> on_lost);
  ~LauncherLease() { stop(); }
  LauncherLease(const LauncherLease&) = delete;
  LauncherLease& operator=(const LauncherLease&) = delete;

  // The first heartbeat is due one pause from now.
  void begin();
  // The order has come: its lease counts from now on, and a heartbeat goes out at once.
  void take_order(Milliseconds lease);
  void suspend(bool suspended) { suspended_ = suspended; }
  bool suspended() const { return suspended_; }
  // How long the launcher may be silent now.
  Milliseconds limit() const { return suspended_ ? options_.suspended_lease : lease_; }
  void stop();

 private:
  void beat();
  void await_next();

  os::EventLoop& loop_;
  LauncherLink& link_;
  Options options_;
  std::function<void()> on_lost_;
  Milliseconds lease_;
  Milliseconds pause_;  // between two heartbeats
  bool suspended_ = false;
  bool stopped_ = false;
  Clock::time_point next_;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
