// SPDX-License-Identifier: Apache-2.0
// Where the bytes of each rank's streams go: tagged lines to the console and to the files of
// --output-filename. The console shows whole lines. Only a line longer than the tagger's
// limit is shown in segments; when another stream needs the console in between, the cut and the
// continuation are marked.
#include "launcher/output/output_sinks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <utility>

#include "launcher/output/user_terminal.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kContinues = "<continues>\n";
constexpr std::string_view kEraseRow = "\r\033[K";
constexpr std::string_view kContinued = "<continued>";

// A terminal has several names.
bool are_one(int a, int b) {
  struct stat first {};
  struct stat second {};
  if (::fstat(a, &first) != 0 || ::fstat(b, &second) != 0) return false;
  return (first.st_dev == second.st_dev && first.st_ino == second.st_ino) ||
         (::isatty(a) == 1 && ::isatty(b) == 1);
}

// mkdir -p; an existing directory is fine.
Status make_directories(const std::string& path) {
  for (std::size_t at = 1; at <= path.size(); ++at) {
    if (at != path.size() && path[at] != '/') continue;
    const std::string prefix = path.substr(0, at);
    // The umask decides, as for any file that the user creates.
    if (::mkdir(prefix.c_str(), 0777) != 0 && errno != EEXIST) {
      return errno_error(errno, "--output-filename: creating " + prefix);
    }
  }
  return Ok{};
}

// In a folder of another user, or that others may write to, a link may be theirs, and lead to a
// file of ours.
Result<int> flag_against_links(int folder, const std::string& path) {
  struct stat info {};
  if (::fstat(folder, &info) != 0) return errno_error(errno, "--output-filename: " + path);
  // root can replace anything anyway, so a folder of root counts as safe.
  const bool is_ours = info.st_uid == ::geteuid() || info.st_uid == 0;
  return is_ours && (info.st_mode & S_IWOTH) == 0 ? 0 : O_NOFOLLOW;
}

Result<os::Fd> open_below(int folder, const std::string& folder_path, const std::string& name,
                          int flags) {
  const auto no_links = flag_against_links(folder, folder_path);
  if (!no_links) return no_links.error();
  os::Fd opened(::openat(folder, name.c_str(), flags | *no_links | O_CLOEXEC, 0666));
  if (opened.valid()) return opened;
  const int problem = errno;
  const std::string path = folder_path + "/" + name;
  struct stat info {};
  if (*no_links != 0 && ::fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(info.st_mode)) {
    return make_error(
        ErrorCode::kUsage,
        "--output-filename: " + path + " is a link, in a folder where others may have put it");
  }
  if (problem == ENXIO) {
    return make_error(ErrorCode::kUsage,
                      "--output-filename: " + path + " is a pipe without a reader, or not a file");
  }
  return errno_error(problem, "--output-filename: opening " + path);
}

// Files that were rotated: "stdout.1" is the last of them.
std::string rotated_name(const std::string& file, int number) {
  return file + "." + std::to_string(number);
}

void remove_rotated(int folder, const std::string& file) {
  int number = 1;
  while (::unlinkat(folder, rotated_name(file, number).c_str(), 0) == 0) ++number;
}

bool is_rank_directory(const std::string& name) {
  constexpr std::string_view kStart = "rank.";
  return name.starts_with(kStart) && name.size() > kStart.size() &&
         name.find_first_not_of("0123456789", kStart.size()) == std::string::npos;
}

// The two that belong to a rank, and their folder if nothing else is in it. False: they are not
// there as we make them.
bool remove_files(int folder, const std::string& name) {
  const os::Fd of_rank(
      ::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!of_rank.valid()) return false;
  for (const char* file : {"stdout", "stderr"}) {
    struct stat info {};
    if (::fstatat(of_rank.get(), file, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) {
      return false;
    }
  }
  bool removed = true;
  for (const char* file : {"stdout", "stderr"}) {
    removed = ::unlinkat(of_rank.get(), file, 0) == 0 && removed;
    remove_rotated(of_rank.get(), file);
  }
  (void)::unlinkat(folder, name.c_str(), AT_REMOVEDIR);
  return removed;
}

Result<os::Fd> open_folder(const std::string& folder, const std::string& name) {
  const os::Fd whole(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!whole.valid()) return errno_error(errno, "--output-filename: opening " + folder);
  return open_below(whole.get(), folder, name, O_RDONLY | O_DIRECTORY);
}

// Renames the file and those before it, and makes a new one. Where that fails, the file is what it
// was.
Result<os::Fd> next_file(const std::string& folder, const std::string& name,
                         const std::string& file, int most_files) {
  const auto of_rank = open_folder(folder, name);
  if (!of_rank) return of_rank.error();
  const auto rename = [&](const std::string& from, const std::string& to) {
    return ::renameat(of_rank->get(), from.c_str(), of_rank->get(), to.c_str()) == 0;
  };
  for (int number = most_files - 1; number > 1; --number) {
    (void)rename(rotated_name(file, number - 1), rotated_name(file, number));
  }
  const std::string last = rotated_name(file, 1);
  const std::string path = folder + "/" + name + "/" + file;
  if (!rename(file, last)) return errno_error(errno, "--output-max-size: renaming " + path);
  auto made =
      open_below(of_rank->get(), folder + "/" + name, file, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
  if (!made) (void)rename(last, file);
  return made;
}

// A progress bar's, and not half of a "\r\n".
bool is_lone_return(std::string_view text, std::size_t at) {
  return text[at] == '\r' && (at + 1 == text.size() || text[at + 1] != '\n');
}

}  // namespace

std::size_t whole_lines(std::string_view text, std::size_t room, bool in_line, bool is_empty) {
  constexpr std::size_t kNone = std::string_view::npos;
  if (text.size() <= room) return text.size();
  const std::size_t last = room == 0 ? kNone : text.rfind('\n', room - 1);
  if (last != kNone) return last + 1;
  if (!in_line && !is_empty) return 0;
  const std::size_t first = text.find('\n');
  return first == kNone ? text.size() : first + 1;
}

std::string rank_directory(int rank, int world_size) {
  const std::string widest = std::to_string(world_size - 1);
  std::string number = std::to_string(rank);
  if (number.size() < widest.size()) number.insert(0, widest.size() - number.size(), '0');
  return "rank." + number;
}

OutputSinks::OutputSinks(os::EventLoop& loop, OutputWriter& writer, Options options,
                         std::atomic<bool>& row_is_open)
    : loop_(loop),
      writer_(writer),
      options_(std::move(options)),
      one_console_(are_one(STDOUT_FILENO, STDERR_FILENO)),
      terminal_{::isatty(STDOUT_FILENO) == 1, ::isatty(STDERR_FILENO) == 1},
      row_is_open_(row_is_open) {}

Status OutputSinks::open() {
  if (!options_.directory.empty() && !options_.append) remove_former_files();
  for (std::size_t rank = 0; rank < options_.places.size(); ++rank)
    HORA_TRY(open_files(static_cast<int>(rank), options_.append));
  return Ok{};
}

std::string OutputSinks::directory_of(int label) const {
  return rank_directory(label,
                        std::max(static_cast<int>(options_.places.size()), options_.digits_for));
}

// Next to those of this run they would pass for its own. What is not as this class makes it stays.
void OutputSinks::remove_former_files() const {
  std::set<std::string> own;
  for (const RankPlace& place : options_.places) own.insert(directory_of(place.rank));
  const os::Fd whole(::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!whole.valid()) return;
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(options_.directory, failed)) {
    const std::string name = entry.path().filename();
    if (is_rank_directory(name) && own.count(name) == 0) names.push_back(name);
  }
  std::erase_if(names, [&](const std::string& name) { return !remove_files(whole.get(), name); });
  if (names.empty()) return;
  std::sort(names.begin(), names.end());
  os::log_warn("horarun", "--output-filename: removed the files of an earlier run from " +
                              options_.directory + ": " + names.front() +
                              (names.size() > 1 ? " to " + names.back() : ""));
}

const RankPlace& OutputSinks::place_of(int rank) const {
  static const RankPlace kUnknown;
  const auto found = places_.find(rank);
  if (found != places_.end()) return found->second;
  const auto at = static_cast<std::size_t>(rank);
  return at < options_.places.size() ? options_.places[at] : kUnknown;
}

Status OutputSinks::open_files(int rank, bool append) {
  if (options_.directory.empty()) return Ok{};
  const std::string name = directory_of(place_of(rank).rank);
  const std::string directory = options_.directory + "/" + name;
  HORA_TRY(make_directories(directory));
  const auto of_rank = open_folder(options_.directory, name);
  if (!of_rank) return of_rank.error();
  for (const int stream : {1, 2}) {
    Stream& entry = stream_of(0, rank, stream);
    const std::string file(entry.name);
    if (!append) remove_rotated(of_rank->get(), file);
    // A pipe whose reader has not come would be waited for, by the thread that must not wait.
    const int flags = O_WRONLY | O_CREAT | O_NONBLOCK | (append ? O_APPEND : O_TRUNC);
    auto opened = open_below(of_rank->get(), directory, file, flags);
    if (!opened) return std::move(opened).error();
    entry.file = *std::move(opened);
    paths_[entry.file.get()] = directory + "/" + file;
    struct stat info {};
    if (!options_.rotation || ::fstat(entry.file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
      continue;
    }
    entry.rotated_in = name;
    entry.file_size = static_cast<std::size_t>(info.st_size);
  }
  return Ok{};
}

Status OutputSinks::add_rank(int rank, RankPlace place) {
  const bool is_new = opened_.insert(place.rank).second;
  places_[rank] = std::move(place);
  return open_files(rank, !is_new);
}

void OutputSinks::relabel(int rank, RankPlace place) {
  for (const int stream : {1, 2}) {
    const auto found = streams_.find({rank, stream});
    if (found == streams_.end()) continue;
    Stream& entry = found->second;
    // What the row begins with is no longer what the line begins with.
    if (in_row(entry)) leave_row(&entry, false);
    set_place(entry, place);
  }
  places_[rank] = std::move(place);
}

void OutputSinks::set_place(Stream& stream, const RankPlace& place) {
  stream.place = place;
  stream.prefix = options_.prefix.fill(place, stream.name, {});
  stream.shown = is_shown(place.rank);
  if (stream.folder) stream.folder->relabel(place.rank);
}

OutputSinks::Stream& OutputSinks::stream_of(int host, int rank, int stream) {
  const auto key = std::make_pair(rank, stream);
  auto found = streams_.find(key);
  if (found == streams_.end()) {
    const LineFilter* const filter = options_.filter.shows_all() ? nullptr : &options_.filter;
    Stream made{LineTagger(Returns::kEndSegment, filter), LineTagger(Returns::kReplaceLine)};
    made.console = options_.merge_stderr ? STDOUT_FILENO : stream;
    made.host = host;
    made.name = stream == 2 ? "stderr" : "stdout";
    made.is_pty = options_.has_pty && rank == 0;
    if (options_.fold_tracebacks && stream == 2) made.folder.emplace(rank);
    found = streams_.emplace(key, std::move(made)).first;
    set_place(found->second, place_of(rank));
  }
  return found->second;
}

bool OutputSinks::is_shown(int label) const {
  return !options_.shown || options_.shown->contains(label);
}

std::string OutputSinks::prefix_of(const Stream& stream) const {
  if (!options_.prefix.has_time()) return stream.prefix;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  LocalTime time;
  ::localtime_r(&now.tv_sec, &time.parts);
  time.milliseconds = static_cast<int>(now.tv_nsec / 1'000'000);
  return options_.prefix.fill(stream.place, stream.name, time);
}

OutputSinks::Stream*& OutputSinks::last_on(int console) {
  return last_[one_console_ || console == STDOUT_FILENO ? 0 : 1];
}

// Before `text` goes out: the end of a line that another stream is in, the start of one that this
// stream was in.
void OutputSinks::take_console(Stream& stream, std::string& text) {
  Stream*& last = last_on(stream.console);
  if (last != nullptr && last != &stream && last->tagger.in_segment()) {
    last->cut = true;
    write_console(*last, std::string(kContinues));
    row_is_open_ = false;
  }
  if (last != nullptr && std::exchange(last->open, false)) {
    write_console(*last, "\n");
    row_is_open_ = false;
  }
  if (last != &stream && on_terminal(stream)) {
    const std::size_t end = text.find_first_of("\r\n");
    const bool is_bar = end == std::string::npos ? stream.is_bar : is_lone_return(text, end);
    leave_row(last, is_bar);
  }
  last = &stream;
  if (!std::exchange(stream.cut, false)) return;
  text.insert(0, prefix_of(stream).append(kContinued));
}

void OutputSinks::output(int host, int rank, int stream, std::string_view bytes) {
  if (stream != 1 && stream != 2) return;
  Stream& entry = stream_of(host, rank, stream);
  entry.host = host;
  if (entry.file.valid()) {
    std::string lines;
    entry.file_tagger.feed(bytes, prefix_of(entry), lines);
    write_file(entry, std::move(lines));
  }
  if (!entry.folder) return show(entry, bytes, bytes.size());
  show(entry, entry.folder->feed(bytes), bytes.size());
  entry.folder_due = kNever;
  if (entry.folder->holds()) show_later(entry.folder_due, Clock::now() + kTracebackDelay);
}

void OutputSinks::write_console(const Stream& stream, std::string text, std::size_t credit) {
  writer_.write(stream.console, with_returns(stream.console, std::move(text)), stream.host, credit);
}

// The other ranks' lines begin a row, wherever this leaves the cursor.
void OutputSinks::show_unchanged(Stream& stream, std::string_view bytes, std::size_t credit) {
  std::string text(stream.shown ? bytes : std::string_view());
  if (!text.empty()) {
    take_console(stream, text);
    if (on_terminal(stream)) row_is_open_ = text.back() != '\n';
  }
  writer_.write(stream.console, std::move(text), stream.host, credit);
}

// On the console.
void OutputSinks::show(Stream& stream, std::string_view bytes, std::size_t credit) {
  if (stream.is_pty) return show_unchanged(stream, bytes, credit);
  std::string text;
  text.reserve(bytes.size() + 64);
  if (last_on(stream.console) != &stream) stream.tagger.interrupt();
  const bool is_new = stream.tagger.held_bytes() == 0;
  const std::size_t head = on_terminal(stream) ? head_of(stream) : 0;
  stream.tagger.feed(bytes, prefix_of(stream), text);
  const bool ends_line = !text.empty();
  drop_shown(stream, head, text);
  // An incomplete line waits in the tagger, which is bounded by itself, and so does a traceback in
  // the folder: their credit goes back now.
  emit(stream, std::move(text), false, credit);
  expect_end(stream, is_new || ends_line);
}

void OutputSinks::end_of_stream(int host, int rank, int stream) {
  if (stream != 1 && stream != 2) return;
  Stream& entry = stream_of(host, rank, stream);
  if (entry.ended) return;
  entry.ended = true;
  if (entry.folder) show(entry, entry.folder->release(), 0);
  entry.due = entry.folder_due = kNever;
  std::string text;
  if (last_on(entry.console) != &entry) entry.tagger.interrupt();
  const std::size_t head = on_terminal(entry) ? head_of(entry) : 0;
  // The tagger may hold a last line without a line feed.
  const bool unterminated = entry.tagger.finish(prefix_of(entry), text);
  std::string lines;
  (void)entry.file_tagger.finish(prefix_of(entry), lines);
  write_file(entry, std::move(lines));
  drop_shown(entry, head, text);
  // On the console another rank's line must not run on behind this one.
  emit(entry, std::move(text), unterminated, 0);
}

void OutputSinks::write_file(Stream& stream, std::string text) {
  if (!stream.file.valid()) return;
  while (!text.empty()) {
    std::size_t count = text.size();
    if (!stream.rotated_in.empty()) {
      const std::size_t room =
          options_.rotation->most_bytes -
          std::min<std::size_t>(options_.rotation->most_bytes, stream.file_size);
      count = whole_lines(text, room, stream.file_in_line, stream.file_size == 0);
    }
    std::string rest = text.substr(count);
    text.resize(count);
    stream.file_size += count;
    // Its credit is returned with the console's copy.
    if (count > 0) {
      stream.file_in_line = text.back() != '\n';
      writer_.write(stream.file.get(), std::move(text), stream.host, 0);
    }
    text = std::move(rest);
    if (!text.empty()) rotate(stream);
  }
}

// On the writer's thread, in turn: the disk may be slow.
void OutputSinks::rotate(Stream& stream) {
  stream.file_size = 0;
  writer_.replace(
      stream.file.get(),
      [folder = options_.directory, name = stream.rotated_in, file = std::string(stream.name),
       most = options_.rotation->most_files, failed = rotation_failed_] {
        auto next = next_file(folder, name, file, most);
        if (!next && !std::exchange(*failed, true)) {
          os::log_warn("horarun", next.error().message + "; the file grows on");
        }
        return next ? *std::move(next) : os::Fd();
      });
}

void OutputSinks::emit(Stream& stream, std::string text, bool end_line, std::size_t credit) {
  // The text is not shown, but its bytes are done with: the host may send more.
  if (!stream.shown) return writer_.write(stream.console, {}, stream.host, credit);
  if (!text.empty()) take_console(stream, text);
  // Where lines have no prefix, the last one stays as it is: the output of a single rank may be a
  // tar file. But on a terminal our own messages may follow.
  if (end_line && (!options_.prefix.is_empty() || one_console_)) {
    text += '\n';
  } else {
    stream.open = end_line;
  }
  if (!text.empty() && on_terminal(stream)) {
    row_is_open_ = text.back() != '\n';
    stream.is_bar = text.back() == '\r';
  }
  write_console(stream, std::move(text), credit);
}

// --- unfinished lines on a terminal --------------------------------------------------------------

// Its line is the last that was written, and nothing has ended the row since.
bool OutputSinks::in_row(const Stream& stream) {
  return stream.row > 0 && last_on(stream.console) == &stream && row_is_open_;
}

// Before text of another stream. A progress bar is replaced by another one, as each replaces its
// own former state: where every rank has one, rows would fly by otherwise.
void OutputSinks::leave_row(Stream* last, bool next_is_bar) {
  const bool is_open = row_is_open_.exchange(false);
  // Nothing of it stays between the lines of the ranks.
  if (std::exchange(has_status_, false)) {
    if (is_open) writer_.write(STDERR_FILENO, std::string(kEraseRow), 0, 0);
    return;
  }
  if (last == nullptr) {
    // What the terminal shows of a key, such as ^C.
    const int fd = terminal_[0] ? STDOUT_FILENO : STDERR_FILENO;
    if (is_open) writer_.write(fd, with_returns(fd, "\n"), 0, 0);
    return;
  }
  const bool replaces = next_is_bar && last->is_bar;
  std::string end = replaces ? "\r" : "\n";
  if (std::exchange(last->row, 0) > 0) {
    const auto now = Clock::now();
    const auto wait = std::max<Clock::duration>(kUnfinishedDelay, now - last->since);
    if (!replaces) show_later(last->due, now + wait);
    // Its colours stay with it.
    if (last->tagger.unfinished({}).find('\033') != std::string::npos) end.insert(0, "\033[0m");
  }
  if (is_open) write_console(*last, std::move(end));
}

// Of a line that begins, the bytes before the rank's own.
std::size_t OutputSinks::head_of(const Stream& stream) const {
  return stream.tagger.in_segment() ? 0 : prefix_of(stream).size();
}

// Of text that ends the line that began with `head` bytes of our own.
void OutputSinks::drop_shown(Stream& stream, std::size_t head, std::string& text) {
  if (text.empty()) return;
  if (stream.passed > 0) text.erase(head, std::exchange(stream.passed, 0));
  if (in_row(stream)) text.erase(0, stream.row);
  stream.row = 0;
  stream.due = kNever;
}

void OutputSinks::expect_end(Stream& stream, bool is_new) {
  if (stream.tagger.held_bytes() == 0 || !stream.shown || !on_terminal(stream)) return;
  const auto now = Clock::now();
  if (is_new) stream.since = now;
  const bool has_row = in_row(stream) || (stream.is_bar && last_on(stream.console) == &stream);
  if (has_row) return show_unfinished(stream);
  if (is_new) show_later(stream.due, now + kUnfinishedDelay);
}

void OutputSinks::show_unfinished(Stream& stream) {
  stream.due = kNever;
  std::string text = stream.tagger.unfinished(prefix_of(stream));
  const std::size_t head = head_of(stream);
  if (text.size() <= head + stream.passed) return;
  text.erase(head, stream.passed);
  const std::size_t whole = text.size();
  if (in_row(stream)) text.erase(0, stream.row);
  stream.tagger.keep_unfinished();
  take_console(stream, text);
  stream.row = whole;
  row_is_open_ = true;
  write_console(stream, std::move(text));
}

// `what`: the due time of a stream.
void OutputSinks::show_later(Clock::time_point& what, Clock::time_point due) {
  what = due;
  if (timer_at_ <= due) return;
  loop_.cancel(timer_);
  timer_at_ = due;
  timer_ = loop_.call_at(due, [this] { show_due(); });
}

void OutputSinks::show_due() {
  timer_ = 0;
  timer_at_ = kNever;
  const auto now = Clock::now();
  for (auto& [key, stream] : streams_) {
    if (stream.folder_due <= now) {
      stream.folder_due = kNever;
      show(stream, stream.folder->release(), 0);
    }
    if (stream.due <= now) show_unfinished(stream);
    for (Clock::time_point* later : {&stream.due, &stream.folder_due}) {
      if (*later != kNever) show_later(*later, *later);
    }
  }
}

// The row counts as open, so that whatever is written next ends it: output of a rank erases it,
// and a message of the launcher, which has a writer of its own, begins a new row below it. No
// stream continues its line there: the last one is forgotten.
void OutputSinks::show_status(const std::string& text) {
  Stream*& last = last_on(STDERR_FILENO);
  const bool is_within_line = last != nullptr && (last->tagger.in_segment() || last->open);
  if (is_within_line || (row_is_open_ && !has_status_)) return;
  leave_row(last, false);
  last = nullptr;
  writer_.write(STDERR_FILENO, text, 0, 0);
  row_is_open_ = has_status_ = true;
}

void OutputSinks::line_typed() {
  row_is_open_ = false;
  for (Stream* last : last_) {
    if (last == nullptr || last->row == 0) continue;
    last->passed += last->row - head_of(*last);
    last->row = 0;
    last->is_bar = false;
  }
}

void OutputSinks::finish() {
  if (has_status_) leave_row(nullptr, false);
  for (auto& [key, stream] : streams_) {
    end_of_stream(stream.host, key.first, key.second);
    if (stream.file.valid()) writer_.close(std::move(stream.file));
  }
}

std::string OutputSinks::path_of(int fd) const {
  const auto found = paths_.find(fd);
  return found == paths_.end() ? std::string() : found->second;
}

}  // namespace hora::launcher
