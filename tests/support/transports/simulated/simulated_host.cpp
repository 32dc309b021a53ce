// SPDX-License-Identifier: Apache-2.0
#include "tests/support/transports/simulated/simulated_host.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "rendezvous/base/machine.h"

namespace hora::test {

using namespace hora::launcher;

namespace {

constexpr Milliseconds kDelay{500};
constexpr std::size_t kPiece = 32 * 1024;     // of output, as a real agent reads from a pipe
constexpr std::size_t kMostQueued = 1 << 18;  // bytes on their way; a real agent has a pipe full

std::int64_t wall_ns() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

// 10.128.0.0/9 has room for eight million of them. tests/benchmark/scale/run gives the launcher an
// address there.
std::string address_of(int index) {
  const int number = index + 256;
  return "10." + std::to_string(128 + (number >> 16)) + "." + std::to_string((number >> 8) & 255) +
         "." + std::to_string(number & 255);
}

Hello hello_of(const std::string& name, int index) {
  Hello hello;
  hello.version = HORA_VERSION;
  hello.hostname = name;
  hello.boot_id = "00000000-0000-4000-8000-" + std::to_string(100'000'000'000 + index);
  hello.home = "/root";
  hello.user = "root";
  hello.machine = own_machine();
  hello.c_library = "glibc 2.36";
  hello.pid = 1000;
  hello.cache_directory = "/root/.cache/hora";
  hello.cpus = 64;
  InterfaceInfo loopback;
  loopback.name = "lo";
  loopback.address = "127.0.0.1";
  loopback.prefix_length = 8;
  loopback.up = loopback.loopback = true;
  InterfaceInfo ethernet;
  ethernet.name = "eth0";
  ethernet.address = address_of(index);
  ethernet.prefix_length = 9;
  ethernet.up = true;
  ethernet.speed_mbps = 100'000;
  ethernet.mtu = 9'000;
  hello.interfaces = {loopback, ethernet};
  hello.ssh_connection = "10.128.0.1 50000 " + ethernet.address + " 22";
  hello.probe_port = 40'000;
  hello.probe_nonce = std::to_string(index);
  hello.free_port = 41'000;
  hello.clock_ns = wall_ns();
  return hello;
}

}  // namespace

SimulatedHost::SimulatedHost(os::EventLoop& loop, os::Fd stream, std::string name, int index,
                             Handlers handlers)
    : loop_(loop),
      stream_(std::move(stream)),
      name_(std::move(name)),
      index_(index),
      behaviour_([this] {
        const std::string_view behaviour = std::string_view(name_).substr(0, name_.find('-'));
        if (behaviour == "slow") return Behaviour::kSlow;
        if (behaviour == "silent") return Behaviour::kSilent;
        if (behaviour == "mute") return Behaviour::kMute;
        if (behaviour == "gone") return Behaviour::kGone;
        if (behaviour == "refuses") return Behaviour::kRefuses;
        return Behaviour::kUsual;
      }()),
      handlers_(std::move(handlers)) {}

SimulatedHost::~SimulatedHost() { close(); }

Status SimulatedHost::begin() {
  if (::fcntl(stream_.get(), F_SETFL, O_NONBLOCK) != 0) {
    return errno_error(errno, "the stream of " + name_);
  }
  HORA_TRY(loop_.watch(stream_.get(), EPOLLIN, [this](std::uint32_t events) { on_io(events); }));
  if (behaviour_ == Behaviour::kSilent) return Ok{};
  if (behaviour_ == Behaviour::kSlow) {
    delay_ = loop_.call_after(kDelay, [this] {
      delay_ = 0;
      greet();
    });
  } else {
    greet();
  }
  return Ok{};
}

void SimulatedHost::greet() {
  outgoing_.append(kAgentMagic);
  send(FrameType::kHello, encode(hello_of(name_, index_)));
  handlers_.reached(Step::kHello);
  beat();
}

// --- the stream ----------------------------------------------------------------------------------

void SimulatedHost::on_io(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    flush();
    if (running_) write_output();
  }
  if ((events & ~std::uint32_t{EPOLLOUT}) != 0) read_some();
}

void SimulatedHost::read_some() {
  char buffer[64 * 1024];
  const ssize_t got = ::read(stream_.get(), buffer, sizeof buffer);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) return close();  // the launcher has gone, as far as this host is concerned
  frames_.feed({buffer, static_cast<std::size_t>(got)});
  while (!over_) {
    auto frame = frames_.next();
    if (!frame) return handlers_.broken(name_ + ": " + frame.error().message);
    if (!frame->has_value()) return;
    take(std::move(**frame));
  }
}

void SimulatedHost::take(Frame frame) {
  handlers_.counted(frame.type, kFrameHeaderSize + frame.payload.size(), false);
  if (behaviour_ == Behaviour::kSilent || (behaviour_ == Behaviour::kMute && running_)) return;
  if (behaviour_ != Behaviour::kSlow) return act(frame);
  late_.push_back(std::move(frame));
  if (delay_ != 0) return;
  delay_ = loop_.call_after(kDelay, [this] {
    delay_ = 0;
    for (const Frame& each : std::exchange(late_, {})) act(each);
  });
}

void SimulatedHost::send(FrameType type, std::string_view payload) {
  if (over_) return;
  handlers_.counted(type, kFrameHeaderSize + payload.size(), true);
  append_frame(outgoing_, type, payload);
  flush();
}

void SimulatedHost::flush() {
  std::size_t sent = 0;
  while (sent < outgoing_.size()) {
    const ssize_t wrote = ::send(stream_.get(), outgoing_.data() + sent, outgoing_.size() - sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) break;
    if (wrote < 0) return close();
    sent += static_cast<std::size_t>(wrote);
  }
  outgoing_.erase(0, sent);
  // The launcher sees the end of the stream after the goodbye, and closes it.
  if (left_ && outgoing_.empty()) ::shutdown(stream_.get(), SHUT_WR);
  if (waits_to_write_ == !outgoing_.empty()) return;
  waits_to_write_ = !outgoing_.empty();
  const std::uint32_t events = waits_to_write_ ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (const Status changed = loop_.change(stream_.get(), events); !changed) {
    handlers_.broken(name_ + ": " + changed.error().message);
  }
}

void SimulatedHost::close() {
  for (auto* timer : {&heartbeat_, &end_, &delay_}) loop_.cancel(std::exchange(*timer, 0));
  if (!stream_.valid()) return;
  over_ = true;
  running_ = false;
  loop_.unwatch(stream_.get());
  stream_.reset();
  loop_.post(handlers_.over);
}

// --- the conversation ----------------------------------------------------------------------------

void SimulatedHost::act(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kProbe:
      return answer_probe(frame.payload);
    case FrameType::kOrder:
      return take_order(frame.payload);
    case FrameType::kStart:
      return start_ranks();
    case FrameType::kOutputAck:
      if (std::string_view rest = frame.payload; const auto bytes = read_u32(rest)) {
        output_credit_ += *bytes;
      }
      return running_ ? write_output() : void();
    case FrameType::kInput: {
      std::string_view rest = frame.payload;
      const auto rank = read_u32(rest);
      std::string taken = u32_payload(rank.value_or(0));
      append_u32(taken, static_cast<std::uint32_t>(rest.size()));
      return send(FrameType::kInputAck, taken);
    }
    case FrameType::kTerminate:
      if (!running_) return leave();
      return end_ranks(15);
    case FrameType::kDump:
      return send(FrameType::kStacks, encode(StackReport{}));
    case FrameType::kSample:
      return send(FrameType::kSamples, encode(samples()));
    case FrameType::kSuspend:
      return send(FrameType::kSuspend);
    default:
      return;  // files, signals, heartbeats: nothing is to be said
  }
}

void SimulatedHost::answer_probe(std::string_view payload) {
  const auto probe = decode<Probe>(payload);
  if (!probe) return handlers_.broken(name_ + ": " + probe.error().message);
  ProbeResult result;
  for (const ProbeTarget& target : probe->targets) {
    for (const std::string& address : target.addresses) {
      result.answers.push_back({target.host_index, address, true, address_of(index_), ""});
    }
  }
  send(FrameType::kProbeResult, encode(result));
}

void SimulatedHost::take_order(std::string_view payload) {
  handlers_.reached(Step::kOrder);
  const auto order = decode<HostOrder>(payload);
  if (!order) return handlers_.broken(name_ + ": " + order.error().message);
  if (behaviour_ == Behaviour::kRefuses) {
    send(FrameType::kFailure, encode(Failure{"E_CWD", "the directory is missing", "make it", ""}));
    return leave();
  }
  auto script = parse_rank_script(order->argv);
  if (!script) return handlers_.broken(script.error().message);
  script_ = *script;
  for (const RankOrder& rank : order->ranks) ranks_[rank.rank] = {};
  turn_ = ranks_.begin();
  output_credit_ = static_cast<std::size_t>(order->output_window_bytes);
  pause_ = Milliseconds(order->lease_ms) / 4;
  send(FrameType::kReady, "/root/.cache/hora/bundle");
  handlers_.reached(Step::kReady);
}

void SimulatedHost::start_ranks() {
  handlers_.reached(Step::kStart);
  Started started;
  for (const auto& [rank, state] : ranks_) started.pids.push_back({rank, 2000 + rank});
  send(FrameType::kStarted, encode(started));
  handlers_.reached(Step::kStarted);
  if (behaviour_ == Behaviour::kGone) return close();
  running_ = true;
  if (behaviour_ == Behaviour::kMute) return loop_.cancel(std::exchange(heartbeat_, 0));
  end_ = loop_.call_after(script_.runs_for, [this] {
    end_ = 0;
    time_is_up_ = true;
    write_output();
  });
  write_output();
}

// Ranks take turns, as with a real agent. Each piece waits until the window of the host has room.
void SimulatedHost::write_output() {
  std::size_t idle = 0;
  while (running_ && idle < ranks_.size() && outgoing_.size() < kMostQueued) {
    if (turn_ == ranks_.end()) turn_ = ranks_.begin();
    auto& [rank, state] = *turn_++;
    const std::size_t size =
        std::min({script_.output_bytes - state.written, kPiece, output_credit_});
    if (state.ended || size == 0) {
      ++idle;
      if (!state.ended && time_is_up_ && state.written == script_.output_bytes) {
        end_rank(rank, rank == script_.failing_rank ? script_.failing_code : 0, 0);
      }
      continue;
    }
    idle = 0;
    std::string payload = u32_payload(static_cast<std::uint32_t>(rank));
    payload += '\x01';
    payload += output_of(script_, rank, state.written, size);
    state.written += size;
    output_credit_ -= size;
    send(FrameType::kOutput, payload);
  }
}

void SimulatedHost::end_ranks(int signal) {
  for (auto& [rank, state] : ranks_) {
    if (!state.ended) end_rank(rank, 0, signal);
  }
}

void SimulatedHost::end_rank(int rank, int exit_code, int signal) {
  ranks_[rank].ended = true;
  for (const char stream : {'\x01', '\x02'}) {
    send(FrameType::kOutputEnd, u32_payload(static_cast<std::uint32_t>(rank)) + stream);
  }
  RankExit exit;
  exit.rank = rank;
  exit.exit_code = exit_code;
  exit.signal = signal;
  exit.terminated_by_us = signal != 0;
  exit.clock_ns = wall_ns();
  send(FrameType::kExit, encode(exit));
  const bool last =
      std::all_of(ranks_.begin(), ranks_.end(), [](const auto& each) { return each.second.ended; });
  if (last) leave();
}

// As long as those of a real host.
RankSamples SimulatedHost::samples() {
  RankSamples samples;
  const std::int64_t steps = ++asked_ * 1000;
  for (const auto& [rank, state] : ranks_) {
    if (state.ended) continue;
    RankSample& sample = samples.ranks.emplace_back();
    sample.rank = rank;
    sample.counters = {true, steps, 4'000'000 * steps, 1'000 * steps, 12};
    sample.last_line = "epoch 3, step " + std::to_string(steps) + ", loss 0.1234";
    sample.cpu_ms = steps;
    sample.rss_bytes = std::int64_t{1} << 30;
  }
  return samples;
}

void SimulatedHost::leave() {
  if (over_ || left_) return;
  handlers_.reached(Step::kExits);
  running_ = false;
  loop_.cancel(std::exchange(heartbeat_, 0));
  left_ = true;
  send(FrameType::kGoodbye, encode(Goodbye{}));
  handlers_.reached(Step::kGoodbye);
}

void SimulatedHost::beat() {
  heartbeat_ = loop_.call_after(pause_, [this] {
    send(FrameType::kHeartbeat);
    beat();
  });
}

}  // namespace hora::test
