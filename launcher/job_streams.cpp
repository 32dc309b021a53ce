#include "launcher/job_streams.h"

#include <unistd.h>

#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

// A quarter of the agents' window: acknowledging less often would stall them, more often is noise.
constexpr std::size_t kAcknowledgeEvery = 64 * 1024;

}  // namespace

JobStreams::JobStreams(os::EventLoop& loop, const JobSpec& spec, const Plan& plan,
                       Handlers handlers)
    : handlers_(std::move(handlers)),
      stdin_policy_(spec.stdin_policy),
      rank_lives_(static_cast<std::size_t>(plan.world_size), true),
      host_of_rank_(static_cast<std::size_t>(plan.world_size), 0),
      unacknowledged_(plan.hosts.size(), 0),
      writer_(loop, {[this](int host, std::size_t bytes) { acknowledge(host, bytes); },
                     [this](int fd, int errnum) { on_broken(fd, errnum); }}),
      sinks_(writer_,
             {plan.world_size, spec.prefix_output, spec.prefix_timestamp, spec.output_directory}),
      input_(loop, STDIN_FILENO, [this](std::string_view bytes) { return send_input(bytes); }) {
  for (const HostPlan& host : plan.hosts) {
    for (const Slot& slot : host.slots) host_of_rank_[slot.rank] = host.index;
  }
}

// --- output
// ----------------------------------------------------------------------------------------

Result<int> JobStreams::rank_and_stream(std::string_view& payload, int& rank) const {
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
  return stream;
}

Status JobStreams::output(int host, std::string_view payload) {
  int rank = 0;
  const auto stream = rank_and_stream(payload, rank);
  if (!stream) return stream.error();
  sinks_.output(host, rank, *stream, payload);
  return Ok{};
}

Status JobStreams::output_end(int host, std::string_view payload) {
  int rank = 0;
  const auto stream = rank_and_stream(payload, rank);
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
  owed = 0;
}

void JobStreams::on_broken(int fd, int errnum) {
  const std::string file = sinks_.path_of(fd);
  if (!file.empty()) {
    os::log_error("horarun", errno_error(errnum, "--output-filename: writing " + file).message +
                                 "; the rest of that rank's output goes to the console only");
  } else if (fd == STDOUT_FILENO) {
    handlers_.on_stdout_broken(errnum);
  }
  // When stderr is gone there is nobody left to tell.
}

void JobStreams::finish(std::function<void()> done) {
  input_.stop();
  sinks_.finish();
  writer_.flush(std::move(done));
}

// --- input
// -----------------------------------------------------------------------------------------

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
