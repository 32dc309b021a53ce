// SPDX-License-Identifier: Apache-2.0
// A child process whose words and end come as calls on an event loop's thread, where it lives.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/piped_child.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class WatchedChild {
 public:
  struct Handlers {
    std::function<void(std::string_view bytes)> on_output;
    std::function<void(std::string_view bytes)> on_errors;
    // It has ended, and all that it had written was read: 0..255, or 128 + signal. Once, and the
    // last call; may destroy the object.
    std::function<void(int status)> on_end;
  };

  WatchedChild(os::EventLoop& loop, Handlers handlers)
      : loop_(loop), handlers_(std::move(handlers)) {}
  ~WatchedChild();  // kills it, unless it has ended
  WatchedChild(const WatchedChild&) = delete;
  WatchedChild& operator=(const WatchedChild&) = delete;

  Status start(const std::vector<std::string>& argv);
  Status watch(PipedChild child);  // one that has been started
  // A few bytes, which a pipe has room for.
  void write(std::string_view text);
  // Any number of them, as fast as it reads; its input ends behind them. Once.
  Status feed(std::shared_ptr<const std::string> bytes);
  void close_input();
  void ask_to_end() { child_.ask_to_end(); }
  void leave();  // it goes on unwatched: PipedChild::leave(); no more calls

 private:
  bool read_all(os::Fd& fd, bool& watched, const std::function<void(std::string_view)>& tell);
  void write_input();
  void on_exit();
  void unwatch_all();
  void unwatch(int fd, bool& watched);

  os::EventLoop& loop_;
  Handlers handlers_;
  PipedChild child_;
  bool in_ = false, out_ = false, err_ = false, end_ = false;  // watched
  std::shared_ptr<const std::string> input_;                   // of feed()
  std::size_t fed_ = 0;
};

}  // namespace hora::launcher
