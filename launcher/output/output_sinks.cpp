// SPDX-License-Identifier: Apache-2.0
// Where the bytes of each rank's streams go: tagged lines to the console, and the same text to the
// files of --output-filename. The console shows whole lines. Only a line longer than the tagger's
// limit is shown in segments; when another stream needs the console in between, the cut and the
// continuation are marked.
#include "launcher/output/output_sinks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

namespace hora::launcher {

namespace {

constexpr std::string_view kContinues = "<continues>\n";
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
                      "--output-filename: " + path + " is a pipe that nobody reads, or no file");
  }
  return errno_error(problem, "--output-filename: opening " + path);
}

}  // namespace

std::string rank_directory(int rank, int world_size) {
  const std::string widest = std::to_string(world_size - 1);
  std::string number = std::to_string(rank);
  if (number.size() < widest.size()) number.insert(0, widest.size() - number.size(), '0');
  return "rank." + number;
}

OutputSinks::OutputSinks(OutputWriter& writer, Options options)
    : writer_(writer),
      options_(std::move(options)),
      one_console_(are_one(STDOUT_FILENO, STDERR_FILENO)) {}

Status OutputSinks::open() {
  for (int rank = 0; rank < options_.world_size; ++rank)
    HORA_TRY(open_files(rank, rank, options_.append));
  return Ok{};
}

Status OutputSinks::open_files(int rank, int label, bool append) {
  if (options_.directory.empty()) return Ok{};
  const std::string name =
      rank_directory(label, std::max(options_.world_size, options_.digits_for));
  const std::string directory = options_.directory + "/" + name;
  HORA_TRY(make_directories(directory));
  const os::Fd whole(::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!whole.valid()) return errno_error(errno, "--output-filename: opening " + options_.directory);
  const auto of_rank = open_below(whole.get(), options_.directory, name, O_RDONLY | O_DIRECTORY);
  if (!of_rank) return of_rank.error();
  for (const int stream : {1, 2}) {
    Stream& entry = stream_of(0, rank, stream);
    const std::string file = stream == 2 ? "stderr" : "stdout";
    // A pipe whose reader has not come would be waited for, by the thread that must not wait.
    const int flags = O_WRONLY | O_CREAT | O_NONBLOCK | (append ? O_APPEND : O_TRUNC);
    auto opened = open_below(of_rank->get(), directory, file, flags);
    if (!opened) return std::move(opened).error();
    entry.file = *std::move(opened);
    paths_[entry.file.get()] = directory + "/" + file;
  }
  return Ok{};
}

Status OutputSinks::add_rank(int rank, int label) {
  labels_[rank] = label;
  return open_files(rank, label, !opened_.insert(label).second);
}

void OutputSinks::relabel(int rank, int label) {
  labels_[rank] = label;
  for (const int stream : {1, 2}) {
    const auto found = streams_.find({rank, stream});
    if (found == streams_.end()) continue;
    found->second.tagger.relabel(label);
    found->second.shown = is_shown(label);
  }
}

OutputSinks::Stream& OutputSinks::stream_of(int host, int rank, int stream) {
  const auto key = std::make_pair(rank, stream);
  auto found = streams_.find(key);
  if (found == streams_.end()) {
    const OutputStream kind = stream == 2 ? OutputStream::kStderr : OutputStream::kStdout;
    LineTagger tagger(rank, kind, options_.prefix);
    const int console = options_.merge_stderr ? STDOUT_FILENO : stream;
    found = streams_.emplace(key, Stream{std::move(tagger), {}, console, host}).first;
    const auto label = labels_.find(rank);
    found->second.shown = is_shown(label == labels_.end() ? rank : label->second);
  }
  return found->second;
}

bool OutputSinks::is_shown(int label) const {
  return !options_.shown || options_.shown->contains(label);
}

std::string OutputSinks::timestamp() const {
  if (!options_.timestamp || !options_.prefix) return {};
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return format_timestamp(local.tm_wday, local.tm_mon, local.tm_mday, local.tm_hour, local.tm_min,
                          local.tm_sec, local.tm_year + 1900);
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
    writer_.write(last->console, std::string(kContinues), last->host, 0);
  }
  if (last != nullptr && std::exchange(last->open, false)) {
    writer_.write(last->console, "\n", last->host, 0);
  }
  last = &stream;
  if (!std::exchange(stream.cut, false)) return;
  text.insert(0, stream.tagger.prefix(timestamp()).append(kContinued));
}

void OutputSinks::output(int host, int rank, int stream, std::string_view bytes) {
  if (stream != 1 && stream != 2) return;
  Stream& entry = stream_of(host, rank, stream);
  entry.host = host;
  std::string text;
  text.reserve(bytes.size() + 64);
  if (last_on(entry.console) != &entry) entry.tagger.interrupt();
  entry.tagger.feed(bytes, timestamp(), text);
  // An incomplete line waits in the tagger, which is bounded by itself: its credit goes back now.
  emit(entry, std::move(text), false, bytes.size());
}

void OutputSinks::end_of_stream(int host, int rank, int stream) {
  if (stream != 1 && stream != 2) return;
  Stream& entry = stream_of(host, rank, stream);
  if (entry.ended) return;
  entry.ended = true;
  std::string text;
  if (last_on(entry.console) != &entry) entry.tagger.interrupt();
  // The tagger may hold a last line without a line feed.
  const bool unterminated = entry.tagger.finish(timestamp(), text);
  // On the console another rank's line must not continue this one.
  emit(entry, std::move(text), unterminated, 0);
}

void OutputSinks::emit(Stream& stream, std::string text, bool end_line, std::size_t credit) {
  // The same text twice: its credit is returned once, with the console's copy.
  if (stream.file.valid() && !text.empty()) writer_.write(stream.file.get(), text, stream.host, 0);
  // The text is not shown, but its bytes are done with: the host may send more.
  if (!stream.shown) return writer_.write(stream.console, {}, stream.host, credit);
  if (!text.empty()) take_console(stream, text);
  // Where lines have no prefix, the last one stays as it is: the output of a single rank may be a
  // tar file. But on a terminal our own messages may follow.
  if (end_line && (options_.prefix || one_console_)) {
    text += '\n';
  } else {
    stream.open = end_line;
  }
  writer_.write(stream.console, std::move(text), stream.host, credit);
}

void OutputSinks::finish() {
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
