#include "launcher/output/job_streams.h"

#include <unistd.h>

#include <algorithm>

#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

// A quarter of the agents' window: acknowledging less often would stall them, more often is noise.
constexpr std::size_t kAcknowledgeEvery = 64 * 1024;

// An agent keeps to its window. One that does not could make us hold any amount.
constexpr std::size_t kMostHeld = 4u << 20;

}  // namespace

JobStreams::JobStreams(os::EventLoop& loop, const JobSpec& spec, const Plan& plan,
                       Handlers handlers)
    : handlers_(std::move(handlers)),
      stdin_policy_(spec.stdin_policy),
      rank_lives_(static_cast<std::size_t>(plan.world_size), true),
      host_of_rank_(static_cast<std::size_t>(plan.world_size), 0),
      held_(plan.hosts.size(), 0),
      unacknowledged_(plan.hosts.size(), 0),
      writer_(loop, {[this](int host, std::size_t bytes) { acknowledge(host, bytes); },
                     [this](int fd, int errnum) { on_broken(fd, errnum); }}),
      sinks_(writer_,
             {plan.world_size, spec.prefix_output, spec.prefix_timestamp, spec.output_directory,
              spec.elastic ? std::max(spec.num_proc, spec.elastic->max_np.value_or(0)) : 0}),
      input_(loop, STDIN_FILENO, [this](std::string_view bytes) { return send_input(bytes); }) {
  for (const HostPlan& host : plan.hosts) {
    for (const Slot& slot : host.slots) host_of_rank_[slot.rank] = host.index;
  }
}

Status JobStreams::add_rank(int host, int label) {
  const int rank = static_cast<int>(rank_lives_.size());
  rank_lives_.push_back(true);
  host_of_rank_.push_back(host);
  const std::size_t hosts = std::max(held_.size(), static_cast<std::size_t>(host) + 1);
  held_.resize(hosts, 0);
  unacknowledged_.resize(hosts, 0);
  return sinks_.add_rank(rank, label);
}

// --- output --------------------------------------------------------------------------------------

bool JobStreams::is_rank_of(int host, int rank) const {
  return rank >= 0 && static_cast<std::size_t>(rank) < host_of_rank_.size() &&
         host_of_rank_[static_cast<std::size_t>(rank)] == host;
}

Result<int> JobStreams::rank_and_stream(int host, std::string_view& payload, int& rank) const {
  const auto number = read_u32(payload);
  if (!number || *number >= rank_lives_.size() || payload.empty()) {
    return make_error(ErrorCode::kFailed, "a malformed output frame");
  }
  const int stream = payload.front();
  if (stream != STDOUT_FILENO && stream != STDERR_FILENO) {
    return make_error(ErrorCode::kFailed, "output on an unknown stream");
  }
  payload.remove_prefix(1);
  rank = static_cast<int>(*number);
  if (!is_rank_of(host, rank)) {
    return make_error(ErrorCode::kFailed, "output of a rank that runs on another host");
  }
  return stream;
}

Status JobStreams::output(int host, std::string_view payload) {
  int rank = 0;
  const auto stream = rank_and_stream(host, payload, rank);
  if (!stream) return stream.error();
  std::size_t& held = held_[static_cast<std::size_t>(host)];
  held += payload.size();
  if (held > kMostHeld) {
    return make_error(ErrorCode::kFailed, "more output than was asked for");
  }
  sinks_.output(host, rank, *stream, payload);
  return Ok{};
}

Status JobStreams::output_end(int host, std::string_view payload) {
  int rank = 0;
  const auto stream = rank_and_stream(host, payload, rank);
  if (!stream) return stream.error();
  sinks_.end_of_stream(host, rank, *stream);
  return Ok{};
}

void JobStreams::acknowledge(int host, std::size_t bytes) {
  std::size_t& owed = unacknowledged_[static_cast<std::size_t>(host)];
  owed += bytes;
  if (owed < kAcknowledgeEvery) return;
  std::string payload;
  append_u32(payload, static_cast<std::uint32_t>(owed));
  (void)handlers_.send(host, FrameType::kOutputAck, payload);  // a lost host needs none
  held_[static_cast<std::size_t>(host)] -= owed;
  owed = 0;
}

void JobStreams::on_broken(int fd, int errnum) {
  const std::string file = sinks_.path_of(fd);
  if (!file.empty()) {
    os::log_error("horarun", errno_error(errnum, "--output-filename: writing " + file).message +
                                 "; the rest of that rank's output goes to the console only");
  } else if (fd == STDOUT_FILENO || errnum != EBADF) {
    handlers_.on_console_broken(fd, errnum);
  }
}

void JobStreams::finish(std::function<void()> done) {
  input_.stop();
  sinks_.finish();
  writer_.flush(std::move(done));
}

// --- input ---------------------------------------------------------------------------------------

void JobStreams::start_input() {
  if (stdin_policy_ != StdinPolicy::kNone) input_.start();
}

int JobStreams::send_input(std::string_view bytes) {
  int receivers = 0;
  const std::size_t count = stdin_policy_ == StdinPolicy::kAll ? rank_lives_.size() : 1;
  for (std::size_t rank = 0; rank < count; ++rank) {
    if (!rank_lives_[rank]) continue;
    std::string payload;
    append_u32(payload, static_cast<std::uint32_t>(rank));
    payload.append(bytes);
    const FrameType type = bytes.empty() ? FrameType::kInputEnd : FrameType::kInput;
    if (handlers_.send(host_of_rank_[rank], type, payload)) ++receivers;
  }
  return receivers;
}

Status JobStreams::input_delivered(std::string_view payload) {
  const auto rank = read_u32(payload);
  const auto bytes = read_u32(payload);
  if (!rank || !bytes) return make_error(ErrorCode::kFailed, "a malformed input acknowledgement");
  input_.delivered(*bytes);
  return Ok{};
}

}  // namespace hora::launcher
