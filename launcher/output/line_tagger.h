// SPDX-License-Identifier: Apache-2.0
// Puts a prefix, such as "[3]<stdout>:", before every line of a rank's output.  [pure]
//
// Bytes of one stream of one rank go in as they come, whole segments come out: a segment ends with
// '\n' or '\r' ("\r\n" counts once), so that progress bars keep moving. Nothing else is changed:
// NUL and bytes that are not UTF-8 pass. What is not complete yet is held, at most kMaxHeldBytes;
// a longer segment comes out in pieces with one prefix at its start; in_segment() says that the
// last piece is not its end.
//
// A '\r' that ends what came in could be half of a "\r\n". After a small write it is a progress
// bar and comes out at once; after a large one it is more likely where a read was cut, and is
// held.
//
// For a file, segments are whole lines in the state that a terminal would show last: of
// "10%\r20%\r30%\n" it keeps "30%\n". A stream with a NUL is data, of which nothing is left out.
//
// A filter leaves segments out. The first piece of a long one decides for all of it, and what was
// shown before it ended is shown to its end.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "launcher/plan/output_lines.h"

namespace hora::launcher {

// Whether a lone '\r' ends a segment, or is followed by text that replaces the line's so far.
enum class Returns { kEndSegment, kReplaceLine };

class LineTagger {
 public:
  static constexpr std::size_t kMaxHeldBytes = 1 << 20;
  static constexpr std::size_t kSmallWriteBytes = 4096;

  // `filter`, which may be null, outlives this.
  explicit LineTagger(Returns returns = Returns::kEndSegment, const LineFilter* filter = nullptr)
      : returns_(returns), filter_(filter) {}

  // Appends to `out` what has become complete. `prefix` stands before every segment that begins to
  // come out now.
  void feed(std::string_view bytes, std::string_view prefix, std::string& out);

  // Another stream's bytes went out after this one's last: a '\n' whose '\r' is out already can no
  // longer join it, and becomes a segment of its own.
  void interrupt() { interrupted_ = true; }

  // End of the stream: appends the rest. True when the last byte out is this stream's and no '\n';
  // the console then adds a '\n', a file does not. The tagger is as new afterwards.
  [[nodiscard]] bool finish(std::string_view prefix, std::string& out);

  // Of one that is not left out.
  bool in_segment() const { return in_segment_ && !hidden_; }
  std::size_t held_bytes() const { return held_.size(); }
  // What would come out if the segment ended here, but for half a character or half a control
  // sequence at its end. Empty when nothing is held.
  std::string unfinished(std::string_view prefix) const;
  // It was shown.
  void keep_unfinished() { kept_ = true; }

 private:
  void feed_lines(std::string_view bytes, std::string_view prefix, std::string& out);
  void keep_last_state();
  void emit(std::string_view bytes, bool ends_segment, std::string_view prefix, std::string& out);
  bool is_hidden(std::string_view segment) const;

  Returns returns_;
  const LineFilter* filter_;
  std::string held_;           // the start of a segment that is not complete
  bool in_segment_ = false;    // the prefix and the first bytes of a long segment are out already
  bool hidden_ = false;        // the segment that is or was last coming out is left out
  bool kept_ = false;          // the one that is held is not
  bool after_return_ = false;  // the last byte out was '\r': a '\n' now belongs to it
  bool interrupted_ = false;   // since the last feed()
  bool is_data_ = false;       // a NUL was seen
};

}  // namespace hora::launcher
