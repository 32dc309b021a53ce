// SPDX-License-Identifier: Apache-2.0
// Where the ranks' output goes: the launcher's own stdout and stderr, every line tagged, and, with
// --output-filename DIR, one pair of files per rank: DIR/rank.<R>/stdout and stderr.
//
// No line of the console holds the bytes of two streams. One that is longer than a tagger holds
// goes out in pieces; where another stream's bytes come between two of them, the line is cut there:
//   [0]<stdout>:aaaa<continues>
//   [1]<stdout>:of another rank
//   [0]<stdout>:<continued>aaaa
// To wait for its end instead would take memory without bounds, or hold up all others for as long
// as it does not end. Files are never cut: one that is rotated (FileRotation) ends with a line.
//
// On a terminal, a line that has no end yet (a prompt) is shown after kUnfinishedDelay. Where other
// output comes then, it goes to a row of its own, and the line is shown again as a whole when it
// ends, or after as long a time as it has been without an end.
//
// On the event loop's thread; the writing itself happens in OutputWriter.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/line_tagger.h"
#include "launcher/output/output_writer.h"
#include "launcher/output/traceback_folder.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/output_lines.h"
#include "launcher/plan/selection.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class OutputSinks {
 public:
  struct Options {
    std::vector<RankPlace> places;  // of the ranks; those of an elastic job come by add_rank()
    LinePrefix prefix;
    std::string directory;  // empty: console only
    int digits_for = 0;  // ranks that file names have room for, where that is more than there are
    std::optional<FileRotation> rotation;
    bool append = false;            // the files are those of an earlier attempt
    bool merge_stderr = false;      // the console's stderr goes to its stdout
    std::optional<RankList> shown;  // whose output the console has; none: all. Files have all.
    LineFilter filter;              // of the console
    bool fold_tracebacks = false;   // on the console, see TracebackFolder
    bool has_pty = false;           // rank 0 writes to a terminal of its own: shown as it comes
  };

  static constexpr Milliseconds kUnfinishedDelay{200};
  // For the next line of a traceback.
  static constexpr Milliseconds kTracebackDelay{1'000};

  // `row_is_open`: the last row of the terminal has text that other text must not follow. Shared
  // with what else writes there.
  OutputSinks(os::EventLoop& loop, OutputWriter& writer, Options options,
              std::atomic<bool>& row_is_open);
  ~OutputSinks() { loop_.cancel(timer_); }
  OutputSinks(const OutputSinks&) = delete;
  OutputSinks& operator=(const OutputSinks&) = delete;

  // Creates the directory and every file (truncated), and removes the files of an earlier run that
  // had more ranks. Errors name the path. Nothing is started before this succeeded.
  Status open();

  // Of an elastic job, whose processes come and go: `rank` is the number of a process that is never
  // used again, `place` has the rank that it has now, which names its lines and files. A later
  // process of the same rank appends to an earlier one's file.
  Status add_rank(int rank, RankPlace place);
  void relabel(int rank, RankPlace place);

  // `stream` is 1 or 2. The bytes count as credit of `host` until they are written.
  void output(int host, int rank, int stream, std::string_view bytes);
  void end_of_stream(int host, int rank, int stream);
  // Writes the held parts of streams that never ended (a lost host), and the end of all files.
  void finish();

  // A line of our own on the last row of the terminal, which the next one takes the place of, or
  // output of the ranks. Where a row of a rank has no end yet, it is not shown.
  void show_status(const std::string& text);

  // The user has typed a line on the terminal, whose echo has ended the row.
  void line_typed();

  // Of one of our files, closed ones included; "" of any other.
  std::string path_of(int fd) const;

 private:
  static constexpr Clock::time_point kNever = Clock::time_point::max();
  struct Stream {
    LineTagger tagger;
    LineTagger file_tagger;
    std::optional<TracebackFolder> folder = {};  // of a stderr
    os::Fd file = {};
    std::string rotated_in = {};  // the folder of the file, if it is rotated
    std::size_t file_size = 0;    // then, in bytes
    bool file_in_line = false;    // what was written last is not the end of its line
    int console = 1;
    int host = 0;
    std::string_view name = {};  // "stdout", "stderr"
    RankPlace place = {};
    std::string prefix = {};  // unless it has the time
    bool ended = false;
    bool cut = false;   // in the middle of a line, on the console
    bool open = false;  // it has ended in the middle of a line, to which nothing was added yet
    bool shown = true;
    bool is_pty = false;
    // On a terminal: of the line that has no end yet.
    std::size_t row = 0;     // its bytes in the last row, prefix included
    std::size_t passed = 0;  // its bytes, without prefix, in rows that a typed line has ended
    Clock::time_point since{};
    Clock::time_point due = kNever;         // when it is to be shown
    bool is_bar = false;                    // what came before it ended with '\r'
    Clock::time_point folder_due = kNever;  // when to show what the folder holds
  };

  Stream& stream_of(int host, int rank, int stream);
  void show(Stream& stream, std::string_view bytes, std::size_t credit);
  void show_unchanged(Stream& stream, std::string_view bytes, std::size_t credit);
  void write_console(const Stream& stream, std::string text, std::size_t credit = 0);
  bool is_shown(int label) const;
  Status open_files(int rank, bool append);
  std::string directory_of(int label) const;
  const RankPlace& place_of(int rank) const;
  void set_place(Stream& stream, const RankPlace& place);
  void remove_former_files() const;
  Stream*& last_on(int console);
  void take_console(Stream& stream, std::string& text);
  void write_file(Stream& stream, std::string text);
  void rotate(Stream& stream);
  void emit(Stream& stream, std::string text, bool end_line, std::size_t credit);
  std::string prefix_of(const Stream& stream) const;

  // Of unfinished lines on a terminal.
  bool on_terminal(const Stream& stream) const {
    return terminal_[stream.console == STDOUT_FILENO ? 0 : 1];
  }
  bool in_row(const Stream& stream);
  void leave_row(Stream* last, bool next_is_bar);
  std::size_t head_of(const Stream& stream) const;
  void drop_shown(Stream& stream, std::size_t head, std::string& text);
  void expect_end(Stream& stream, bool is_new);
  void show_unfinished(Stream& stream);
  void show_later(Clock::time_point& what, Clock::time_point due);
  void show_due();

  os::EventLoop& loop_;
  OutputWriter& writer_;
  Options options_;
  std::map<std::pair<int, int>, Stream> streams_;  // by rank and stream
  std::map<int, RankPlace> places_;                // by rank
  const std::shared_ptr<bool> rotation_failed_ = std::make_shared<bool>(false);  // the writer's
  std::set<int> opened_;              // labels with files
  std::map<int, std::string> paths_;  // of files, by descriptor
  bool one_console_;                  // stdout and stderr are the same terminal or file
  std::array<bool, 2> terminal_;
  std::atomic<bool>& row_is_open_;
  bool has_status_ = false;           // the open row is ours, see show_status()
  os::EventLoop::TimerId timer_ = 0;  // for what is to be shown
  Clock::time_point timer_at_ = kNever;
  // Whose bytes are the last on stdout, and on stderr.
  std::array<Stream*, 2> last_{};
};

// How many bytes of whole lines at the start of `text` a file takes that has room for `room`. A
// line that has begun stays in it (`in_line`); an empty file has room for any line.
std::size_t whole_lines(std::string_view text, std::size_t room, bool in_line, bool is_empty);

// "rank.07": the rank, zero-padded to the digits of the largest one.
std::string rank_directory(int rank, int world_size);

}  // namespace hora::launcher
