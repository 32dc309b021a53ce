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
// as it does not end. Files are never cut. On the event loop's thread; the writing itself happens
// in OutputWriter.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/line_tagger.h"
#include "launcher/output/output_writer.h"
#include "launcher/plan/selection.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class OutputSinks {
 public:
  struct Options {
    int world_size = 1;
    bool prefix = true;
    bool timestamp = false;  // "Sat Nov 21 02:44:46 2026" before the prefix
    std::string directory;   // empty: console only
    int digits_for = 0;   // ranks that file names have room for, where that is more than world_size
    bool append = false;  // the files are those of an earlier attempt
    bool merge_stderr = false;      // the console's stderr goes to its stdout
    std::optional<RankList> shown;  // whose output the console has; none: all. Files have all.
  };

  OutputSinks(OutputWriter& writer, Options options);

  // Creates the directory and every file (truncated). Errors name the path. Nothing is started
  // before this succeeded.
  Status open();

  // Of an elastic job, whose processes come and go: `rank` is the number of a process that is never
  // used again, `label` the rank that it has now, which names its lines and files. A later process
  // of the same label appends to an earlier one's file.
  Status add_rank(int rank, int label);
  void relabel(int rank, int label);

  // `stream` is 1 or 2. The bytes count as credit of `host` until they are written.
  void output(int host, int rank, int stream, std::string_view bytes);
  void end_of_stream(int host, int rank, int stream);
  // Writes the held parts of streams that never ended (a lost host), and the end of all files.
  void finish();

  // The name of one of our files, closed ones included; "" for any other.
  std::string path_of(int fd) const;

 private:
  struct Stream {
    LineTagger tagger;
    os::Fd file;
    int console = 1;
    int host = 0;
    bool ended = false;
    bool cut = false;   // in the middle of a line, on the console
    bool open = false;  // it has ended in the middle of a line, to which nothing was added yet
    bool shown = true;
  };

  Stream& stream_of(int host, int rank, int stream);
  bool is_shown(int label) const;
  Status open_files(int rank, int label, bool append);
  Stream*& last_on(int console);
  void take_console(Stream& stream, std::string& text);
  void emit(Stream& stream, std::string text, bool end_line, std::size_t credit);
  std::string timestamp() const;

  OutputWriter& writer_;
  Options options_;
  std::map<std::pair<int, int>, Stream> streams_;  // by rank and stream
  std::map<int, int> labels_;                      // by rank, where they differ
  std::set<int> opened_;                           // labels with files
  std::map<int, std::string> paths_;               // of files, by descriptor
  bool one_console_;  // stdout and stderr are the same terminal or file
  // Whose bytes are the last on stdout, and on stderr.
  std::array<Stream*, 2> last_{};
};

// "rank.07": the rank, zero-padded to the digits of the largest one.
std::string rank_directory(int rank, int world_size);

}  // namespace hora::launcher
