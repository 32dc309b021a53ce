// SPDX-License-Identifier: Apache-2.0
// Carries what the ranks print to the launcher, within the launcher's credit: at most `window`
// bytes are on their way unacknowledged, then the ranks' pipes are left to fill. So a slow reader
// slows the ranks and costs no memory. Ranks take turns of one read each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent/launcher_link.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

enum class OutputStream : std::uint8_t { kStdout = 1, kStderr = 2 };

class OutputPump {
 public:
  OutputPump(os::EventLoop& loop, LauncherLink& link);
  ~OutputPump();
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  Status open(std::size_t window_bytes);
  // A read end. Streams of a rank are added together, before its process exists.
  Status add(int rank, OutputStream stream, os::Fd pipe);

  // The launcher has consumed this many output bytes (headers not counted).
  void acknowledge(std::size_t bytes);

  // Reads what the rank has written so far. True when nothing is left to read now: whatever a rank
  // that has ended wrote is then on its way. False when credit ran out first.
  bool drain(int rank);

  // The launcher is gone: read on, so that no rank blocks on a full pipe, and drop it.
  void discard();
  // No writer is left: sends what the pipes hold, then ends all streams.
  void finish();
  bool all_ended() const { return open_streams_ == 0; }

  // Called after credit came back or output was read: a drain() may now get further.
  void set_on_progress(std::function<void()> handler) { on_progress_ = std::move(handler); }

  // Why something that the rank wrote could not be read; empty: nothing is lost.
  std::string loss_of(int rank) const;
  // The last whole lines of the rank's standard error, at most 4 KiB.
  std::string last_stderr(int rank) const;
  // The newest line that the rank has written, or the beginning of it; empty: none.
  std::string last_line(int rank) const;

 private:
  struct Stream {
    int rank;
    OutputStream which;
    os::Fd pipe;
    bool enlarged = false;
    bool is_terminal = false;     // of all standard streams
    std::string tail{};           // of standard output no more than a line
    std::uint64_t seen = 0;       // bytes, ever
    std::uint64_t last_read = 0;  // which of all reads was the last one
    int error = 0;                // that reading ended with
  };
  enum class ReadResult { kMore, kEmpty, kEnded, kNoCredit };

  void on_ready();
  ReadResult read_once(Stream& stream);
  void end_stream(Stream& stream);
  void watch_pipes(bool wanted);
  void remember(Stream& stream, std::string_view bytes);

  os::EventLoop& loop_;
  LauncherLink& link_;
  os::Fd pipes_;  // an epoll of its own: one switch stops the reading of all
  bool watching_ = false;
  bool discarding_ = false;
  bool finishing_ = false;
  std::size_t window_ = 0;
  std::size_t in_flight_ = 0;
  std::size_t open_streams_ = 0;
  std::uint64_t reads_ = 0;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::function<void()> on_progress_;
};

}  // namespace hora::launcher
