// SPDX-License-Identifier: Apache-2.0
// All pipes of the ranks are in one epoll instance of their own, which the event loop watches as a
// whole. Without credit the pump stops watching that one descriptor; the pipes then fill up and the
// ranks block, which is the intended back-pressure.
#include "launcher/agent/output_pump.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hora::launcher {

namespace {

constexpr std::size_t kOutputChunk = 64 * 1024;
constexpr std::size_t kFlushAt = 256 * 1024;
constexpr int kEventsPerTurn = 32;
constexpr int kLargePipeBytes = 256 * 1024;
constexpr std::size_t kTailBytes = 4 * 1024;
constexpr std::size_t kLineBytes = 256;

}  // namespace

OutputPump::OutputPump(os::EventLoop& loop, LauncherLink& link) : loop_(loop), link_(link) {}

OutputPump::~OutputPump() { watch_pipes(false); }

Status OutputPump::open(std::size_t window_bytes) {
  window_ = std::max<std::size_t>(window_bytes, 4 * 1024);
  pipes_ = os::Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!pipes_.valid()) return errno_error(errno, "creating an epoll instance");
  watch_pipes(true);
  return Ok{};
}

Status OutputPump::add(int rank, OutputStream which, os::Fd pipe) {
  auto stream = std::make_unique<Stream>(Stream{rank, which, std::move(pipe)});
  stream->is_terminal = ::isatty(stream->pipe.get()) == 1;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = stream.get();
  if (::epoll_ctl(pipes_.get(), EPOLL_CTL_ADD, stream->pipe.get(), &event) != 0) {
    return errno_error(errno, "watching a rank's output");
  }
  ++open_streams_;
  streams_.push_back(std::move(stream));
  return Ok{};
}

void OutputPump::watch_pipes(bool wanted) {
  if (wanted == watching_) return;
  if (!wanted) {
    loop_.unwatch(pipes_.get());
    watching_ = false;
    return;
  }
  const auto watched = loop_.watch(pipes_.get(), EPOLLIN, [this](std::uint32_t) { on_ready(); });
  watching_ = watched.has_value();
}

void OutputPump::on_ready() {
  std::array<epoll_event, kEventsPerTurn> events;
  const int count = ::epoll_wait(pipes_.get(), events.data(), kEventsPerTurn, 0);
  for (int i = 0; i < count; ++i) {
    // The kernel moves a pipe that is still readable to the end of its list, so every pipe gets its
    // turn.
    auto* stream = static_cast<Stream*>(events[i].data.ptr);
    if (stream->pipe.valid() && read_once(*stream) == ReadResult::kNoCredit) break;
  }
  link_.flush_later();
  if (on_progress_) on_progress_();
}

// Frames the bytes directly in the link's buffer, without a copy in between.
OutputPump::ReadResult OutputPump::read_once(Stream& stream) {
  static char chunk[kOutputChunk];
  // The window counts bytes that the launcher has not acknowledged.
  const std::size_t credit = discarding_ ? kOutputChunk : window_ - std::min(window_, in_flight_);
  if (credit == 0) {
    watch_pipes(false);
    // Another rank may have used up the credit. One that has written nothing since has no need of
    // it.
    // What a terminal has written, this may not see yet; reading it does.
    int waiting = 0;
    const bool is_empty =
        !stream.is_terminal && ::ioctl(stream.pipe.get(), FIONREAD, &waiting) == 0 && waiting == 0;
    return is_empty ? ReadResult::kEmpty : ReadResult::kNoCredit;
  }
  ssize_t got;
  do {
    got = ::read(stream.pipe.get(), chunk, std::min(credit, kOutputChunk));
  } while (got < 0 && errno == EINTR);
  if (got <= 0) {
    if (got < 0 && errno == EAGAIN) return ReadResult::kEmpty;
    // A terminal has no other end.
    if (got < 0 && !(errno == EIO && stream.is_terminal)) stream.error = errno;
    end_stream(stream);
    return ReadResult::kEnded;
  }
  const std::string_view bytes(chunk, static_cast<std::size_t>(got));
  if (bytes.size() == kOutputChunk && !stream.enlarged) {
    // A rank that prints much gets a larger pipe, which saves turns. Beyond the user's limit the
    // pipe keeps its size.
    stream.enlarged = true;
    (void)::fcntl(stream.pipe.get(), F_SETPIPE_SZ, kLargePipeBytes);
  }
  // The last lines of stderr go into the report of a failure, even if the user discards output.
  remember(stream, bytes);
  if (discarding_) return ReadResult::kMore;
  std::string& out = link_.outgoing();
  append_u32(out, static_cast<std::uint32_t>(size_of_numbers<RankOutput>() + bytes.size()));
  out.push_back(static_cast<char>(FrameType::kOutput));
  append_u32(out, static_cast<std::uint32_t>(stream.rank));
  out.push_back(static_cast<char>(stream.which));
  out.append(bytes);
  in_flight_ += bytes.size();
  if (out.size() >= kFlushAt) link_.flush();
  return ReadResult::kMore;
}

void OutputPump::end_stream(Stream& stream) {
  if (!stream.pipe.valid()) return;
  // Closing the descriptor removes it from the epoll instance.
  stream.pipe.reset();
  --open_streams_;
  if (discarding_) return;
  link_.outgoing() +=
      encode_frame(RankOutputEnd{stream.rank, static_cast<std::uint8_t>(stream.which)});
}

std::string OutputPump::loss_of(int rank) const {
  for (const auto& stream : streams_) {
    if (stream->rank == rank && stream->error != 0) {
      return errno_error(stream->error, "reading its output").message;
    }
  }
  return {};
}

// Called when a rank has ended, so that its last words precede its exit status.
bool OutputPump::drain(int rank) {
  bool drained = true;
  for (const auto& stream : streams_) {
    if (stream->rank != rank) continue;
    // A process that the rank left running may print forever. The rank's own output fits into the
    // pipe, so one pipe's worth and one chunk are enough.
    const int capacity = stream->pipe.valid() ? ::fcntl(stream->pipe.get(), F_GETPIPE_SZ) : 0;
    std::size_t left = static_cast<std::size_t>(std::max(capacity, 0)) + kOutputChunk;
    while (stream->pipe.valid()) {
      const std::size_t before = in_flight_;
      const ReadResult result = read_once(*stream);
      if (result == ReadResult::kNoCredit) drained = false;
      if (result != ReadResult::kMore) break;
      const std::size_t got = discarding_ ? kOutputChunk : in_flight_ - before;
      if (got >= left) break;
      left -= got;
    }
  }
  link_.flush_later();
  return drained;
}

// New credit; continue whatever was stopped by the lack of it.
void OutputPump::acknowledge(std::size_t bytes) {
  in_flight_ -= std::min(in_flight_, bytes);
  if (in_flight_ >= window_) return;
  if (finishing_) finish();
  if (open_streams_ > 0) watch_pipes(true);
  if (on_progress_) on_progress_();
}

// The launcher is gone or takes no output: read on, so that the ranks do not block.
void OutputPump::discard() {
  discarding_ = true;
  if (open_streams_ > 0) watch_pipes(true);
}

// The job is over: read the rest of the pipes, and treat an empty pipe as ended, because a
// remaining process may hold it open.
void OutputPump::finish() {
  finishing_ = true;
  for (const auto& stream : streams_) {
    while (stream->pipe.valid()) {
      const ReadResult result = read_once(*stream);
      if (result == ReadResult::kEmpty) end_stream(*stream);
      if (result == ReadResult::kNoCredit) {
        link_.flush_later();
        return;  // acknowledge() goes on
      }
    }
  }
  link_.flush_later();
}

void OutputPump::remember(Stream& stream, std::string_view bytes) {
  const bool has_errors = stream.which == OutputStream::kStderr || stream.is_terminal;
  const std::size_t kept = has_errors ? kTailBytes : kLineBytes;
  stream.last_read = ++reads_;
  stream.seen += bytes.size();
  // Trims rarely, and by half, so that each byte is moved a bounded number of times.
  stream.tail.append(bytes.substr(bytes.size() - std::min(bytes.size(), 2 * kept)));
  if (stream.tail.size() > 4 * kept) stream.tail.erase(0, stream.tail.size() - 2 * kept);
}

// Of the stream that was read last: a program may print its steps on either. A line that has no end
// yet counts, too.
std::string OutputPump::last_line(int rank) const {
  const Stream* newest = nullptr;
  for (const auto& stream : streams_) {
    const bool is_newer = newest == nullptr || stream->last_read > newest->last_read;
    if (stream->rank == rank && is_newer) newest = stream.get();
  }
  if (newest == nullptr) return {};
  // A progress bar ends its lines by "\r".
  constexpr std::string_view kEnds = "\r\n";
  const std::string_view text = newest->tail;
  const std::size_t last = text.find_last_not_of(kEnds);
  if (last == std::string_view::npos) return {};
  const std::size_t before = text.find_last_of(kEnds, last);
  const std::size_t first = before == std::string_view::npos ? 0 : before + 1;
  return std::string(text.substr(first, std::min(last + 1 - first, kMostLastLine)));
}

std::string OutputPump::last_stderr(int rank) const {
  for (const auto& stream : streams_) {
    if (stream->rank != rank) continue;
    if (stream->which != OutputStream::kStderr && !stream->is_terminal) continue;
    const std::size_t kept = std::min(stream->tail.size(), kTailBytes);
    std::string tail = stream->tail.substr(stream->tail.size() - kept);
    if (stream->seen > kept) {
      // The text begins in the middle of a line: drop that part, unless the line is all there is.
      const std::size_t line = tail.find('\n');
      if (line != std::string::npos && line + 1 < tail.size()) tail.erase(0, line + 1);
    }
    return tail;
  }
  return {};
}

}  // namespace hora::launcher
