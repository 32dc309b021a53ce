// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/job_streams.h"

#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include "launcher/output/user_terminal.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

// A quarter of the agents' window: acknowledging less often would stall them, more often is noise.
constexpr std::size_t kAcknowledgeEvery = 64 * 1024;

// What is typed there appears on the terminal.
bool is_echoed(int fd) {
  termios settings{};
  return ::tcgetattr(fd, &settings) == 0 && (settings.c_lflag & ECHO) != 0;
}

std::vector<RankPlace> places_of(const Plan& plan) {
  std::vector<RankPlace> places(static_cast<std::size_t>(plan.world_size));
  for (const HostPlan& host : plan.hosts) {
    for (const Slot& slot : host.slots) {
      places[static_cast<std::size_t>(slot.rank)] = {slot.rank, slot.local_rank, host.host.name};
    }
  }
  return places;
}

LinePrefix prefix_of(const JobSpec& spec) {
  if (!spec.prefix_output) return {};
  return spec.own_prefix.value_or(LinePrefix::usual(spec.prefix_timestamp));
}

}  // namespace

JobStreams::JobStreams(os::EventLoop& loop, const JobSpec& spec, const Plan& plan,
                       Handlers handlers)
    : handlers_(std::move(handlers)),
      stdin_policy_(spec.stdin_policy),
      has_pty_(spec.pty.has_value()),
      rank_lives_(static_cast<std::size_t>(plan.world_size), true),
      host_of_rank_(static_cast<std::size_t>(plan.world_size), 0),
      unacknowledged_(plan.hosts.size(), 0),
      writer_(loop, OutputWriter::Wake::kAtEndOfTurn,
              {[this](int host, std::size_t bytes) { acknowledge(host, bytes); },
               [this](int fd, int errnum) { on_broken(fd, errnum); }}),
      sinks_(loop, writer_,
             {places_of(plan), prefix_of(spec), spec.output_directory,
              spec.elastic ? std::max(spec.num_proc, spec.elastic->max_np.value_or(0)) : 0,
              spec.rotation, spec.restart && spec.restart->attempt > 0, spec.merge_stderr,
              spec.shown_ranks, spec.shown_lines, spec.prefix_output && !spec.verbose, has_pty_},
             handlers_.row_is_open),
      input_(
          loop, STDIN_FILENO, [this](std::string_view bytes) { return send_input(bytes); },
          [this] {
            reads_keys_ = has_pty_;
            take_terminal();
          }) {
  for (const HostPlan& host : plan.hosts) {
    for (const Slot& slot : host.slots) host_of_rank_[slot.rank] = host.index;
  }
}

Status JobStreams::add_rank(int host, RankPlace place) {
  // Always a new number, though an ended process has freed one: its last output may still be on the
  // way. `place` is what the user sees.
  const int rank = static_cast<int>(rank_lives_.size());
  rank_lives_.push_back(true);
  host_of_rank_.push_back(host);
  unacknowledged_.resize(std::max(unacknowledged_.size(), static_cast<std::size_t>(host) + 1), 0);
  return sinks_.add_rank(rank, std::move(place));
}

// --- output --------------------------------------------------------------------------------------

void JobStreams::acknowledge(int host, std::size_t bytes) {
  written_ += bytes;
  std::size_t& owed = unacknowledged_[static_cast<std::size_t>(host)];
  owed += bytes;
  if (owed < kAcknowledgeEvery) return;
  (void)handlers_.send(host, OutputTaken{owed});  // a lost host needs none
  owed = 0;
}

void JobStreams::on_broken(int fd, int errnum) {
  const std::string file = sinks_.path_of(fd);
  if (!file.empty()) {
    cut_files_.push_back({file, errnum});
    // Others mostly follow, for the same reason: all are reported at the end.
    if (cut_files_.size() > 1) return;
    os::log_warn("horarun", errno_error(errnum, "--output-filename: writing " + file).message +
                                "; further output goes to the console only");
    // "horarun ... 2>&-" is the user's choice and no failure.
  } else if (fd == STDOUT_FILENO || errnum != EBADF) {
    handlers_.on_console_broken(fd, errnum);
  }
}

void JobStreams::finish(std::function<void()> done) {
  // Input ends first, then everything that is queued is written, and only then comes `done`: by
  // then it is known which files were cut.
  input_.stop();
  sinks_.finish();
  for (const int console : {STDOUT_FILENO, STDERR_FILENO}) writer_.settle(console);
  writer_.flush([this, done = std::move(done)] {
    release_terminal();
    done();
  });
}

// --- input ---------------------------------------------------------------------------------------

void JobStreams::start_input() {
  started_ = true;
  resize_terminal();
  if (stdin_policy_ != StdinPolicy::kNone) return input_.start();
  // Not an input that never ends.
  if (has_pty_) (void)send_input({});
}

void JobStreams::resume_input() {
  take_terminal();  // the shell has put back its own settings meanwhile
  resize_terminal();
  input_.reconsider();
}

void JobStreams::take_terminal() {
  if (reads_keys_ && rank_lives_[0]) make_terminal_raw();
}

void JobStreams::resize_terminal() {
  if (!has_pty_ || !started_) return;
  const TerminalSize size = size_of_terminal();
  (void)handlers_.send(host_of_rank_[0], ResizeTerminal{0, size.rows, size.columns});
}

void JobStreams::release_terminal() {
  if (has_pty_) restore_terminal();
}

void JobStreams::rank_ended(int rank) {
  rank_lives_[static_cast<std::size_t>(rank)] = false;
  // After its last output, whose lines return by themselves.
  if (rank == 0 && has_pty_) writer_.flush([this] { release_terminal(); });
}

int JobStreams::send_input(std::string_view bytes) {
  if (has_pty_) {
    // A terminal has no end; a program that reads its lines takes this key for it: twice where a
    // line has begun, which the first one sends.
    if (bytes.empty()) bytes = at_line_start_ ? "\x04" : "\x04\x04";
    at_line_start_ = bytes.ends_with('\n');
  }
  if (bytes.ends_with('\n') && is_echoed(STDIN_FILENO)) sinks_.line_typed();
  int receivers = 0;
  // One receiver is rank 0, as with mpirun; when it has ended, the rest is dropped.
  const std::size_t count = stdin_policy_ == StdinPolicy::kAll ? rank_lives_.size() : 1;
  for (std::size_t rank = 0; rank < count; ++rank) {
    if (!rank_lives_[rank]) continue;
    const int number = static_cast<int>(rank);
    // No bytes are the end of our own input: the ranks see end-of-file on theirs.
    const StreamMessage message = bytes.empty() ? StreamMessage(RankInputEnd{number})
                                                : StreamMessage(RankInput{number, bytes});
    if (handlers_.send(host_of_rank_[rank], message)) ++receivers;
  }
  return receivers;
}

}  // namespace hora::launcher
