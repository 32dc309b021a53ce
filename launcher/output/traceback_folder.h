// SPDX-License-Identifier: Apache-2.0
// Shortens the Python tracebacks that the console shows of one rank.  [pure]
//
// When one rank fails, every other one ends with a traceback that says so. A reader looks for the
// first, and the others bury it. So a traceback that names another rank as the reason becomes one
// line, with the line of the user's program that waited:
//   rank 3 failed because of rank 1: train.py:8, in step: hvd.allreduce(x): HorovodInternalError...
// A traceback that ends with an error of Hora, or by Ctrl-C, loses its frames inside of Hora's
// packages.
// Everything else passes unchanged.
//
// Whole lines come out; what may be a traceback, or a part of one, is held until it has ended. The
// owner calls release() when the stream has ended, or when nothing has come for a while.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hora::launcher {

class TracebackFolder {
 public:
  static constexpr std::size_t kMostHeldBytes = 256 << 10;

  explicit TracebackFolder(int rank) : rank_(rank) {}
  void relabel(int rank) { rank_ = rank; }

  // What is to be shown now.
  std::string feed(std::string_view bytes);
  // What was held: folded if it is a complete traceback, else as it came.
  std::string release();
  bool holds() const { return !held_.empty() || !line_.empty(); }

 private:
  // kThread: "Exception in thread ..." was seen. kEnded: the exception was seen. kLinked: it is the
  // reason for another one, whose traceback follows.
  enum class State { kText, kThread, kFrames, kEnded, kLinked };

  void take_line(std::string& out);
  void take_frame(std::string_view line);
  void take_exception(std::string_view line);
  void begin(std::string_view line);
  std::string one_line(int because_of) const;

  int rank_;
  State state_ = State::kText;
  bool in_line_ = false;  // a part of a line has come out, the rest follows
  std::string line_;      // the one that has not ended
  std::string held_;      // the traceback so far, as it came
  // What follows is of the first traceback of a chain, which says why the others came.
  bool is_first_ = true;
  std::string frame_;        // of the user's program: "train.py:8, in step: hvd.allreduce(x)"
  std::string any_frame_;    // the last that is not in Hora's packages
  bool wants_code_ = false;  // the next line is the frame's line of the program
  bool is_users_ = false;    // the frame whose line comes is of the user's program
  std::string reason_;       // "HorovodInternalError: ..."
  std::string last_;         // the last exception of the chain
};

}  // namespace hora::launcher
