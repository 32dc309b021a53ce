// SPDX-License-Identifier: Apache-2.0
// Runs a script again and again, one run at a time. A run ends with hosts or with a
// failure, never with both, and the next one starts an interval later.
#include "launcher/elastic/host_discovery.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "launcher/process/program_search.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::elastic {

namespace {

constexpr std::size_t kLongestOutput = 4u << 20;
constexpr std::size_t kShownComplaint = 400;
// For kernels that cannot report the end of a process through a descriptor.
constexpr std::chrono::milliseconds kLookAgain{20};

}  // namespace

HostDiscovery::HostDiscovery(os::EventLoop& loop, Options options, Handlers handlers)
    : loop_(loop), options_(std::move(options)), handlers_(std::move(handlers)) {}

HostDiscovery::~HostDiscovery() { stop(); }

void HostDiscovery::stop() {
  stopped_ = true;
  loop_.cancel(std::exchange(next_, 0));
  forget_child();
}

void HostDiscovery::hurry() {
  if (next_ == 0) return;
  loop_.cancel(next_);
  run();
}

// Unwatch before the child goes, because its destructor closes the descriptors.
void HostDiscovery::forget_child() {
  loop_.cancel(std::exchange(deadline_, 0));
  loop_.cancel(std::exchange(look_, 0));
  if (!child_) return;
  if (child_->stdout_fd.valid()) loop_.unwatch(child_->stdout_fd.get());
  if (child_->stderr_fd.valid()) loop_.unwatch(child_->stderr_fd.get());
  if (child_->ended_fd() >= 0) loop_.unwatch(child_->ended_fd());
  child_.reset();
}

void HostDiscovery::run() {
  next_ = 0;
  output_.clear();
  complaint_.clear();
  auto started = PipedChild::start_confined({"/bin/sh", "-c", options_.script});
  if (!started) return conclude(started.error().message);
  child_.emplace(std::move(*started));
  child_->stdin_fd.reset();  // nothing comes
  deadline_ = loop_.call_after(options_.timeout, [this] {
    deadline_ = 0;
    conclude("it did not end within " + format_duration(options_.timeout));
  });
  const auto watch = [this](os::Fd& pipe, std::string& text) {
    // The handlers refer to members, which live as long as the watches.
    return loop_.watch(pipe.get(), EPOLLIN,
                       [this, &pipe, &text](std::uint32_t) { read(pipe, text); });
  };
  Status watched = watch(child_->stdout_fd, output_);
  if (watched) watched = watch(child_->stderr_fd, complaint_);
  if (watched && child_->ended_fd() >= 0) {
    watched = loop_.watch(child_->ended_fd(), EPOLLIN, [this](std::uint32_t) { look(); });
  }
  if (!watched) return conclude(watched.error().message);
  if (child_->ended_fd() < 0) look();
}

void HostDiscovery::read(os::Fd& pipe, std::string& text) {
  std::array<char, 16 * 1024> chunk;
  while (pipe.valid()) {
    const ssize_t got = ::read(pipe.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      loop_.unwatch(pipe.get());
      pipe.reset();
      return;
    }
    text.append(chunk.data(), static_cast<std::size_t>(got));
    // conclude() destroys the child, so return at once.
    if (text.size() > kLongestOutput) return conclude("it prints without an end");
  }
}

// The script's own end decides: what it left in the background, and what holds its pipes open, is
// killed then.
void HostDiscovery::look() {
  look_ = 0;
  const auto status = child_->ended();
  if (!status) {
    if (child_->ended_fd() < 0) look_ = loop_.call_after(kLookAgain, [this] { look(); });
    return;
  }
  read(child_->stdout_fd, output_);
  // read() has concluded the run: there was too much output.
  if (!child_) return;
  read(child_->stderr_fd, complaint_);
  if (!child_) return;
  conclude(*status == 0 ? "" : "it ended with code " + std::to_string(*status));
}

void HostDiscovery::conclude(std::string problem) {
  forget_child();
  if (problem.empty()) {
    auto hosts = handlers_.read(output_);
    if (hosts) {
      handlers_.on_hosts(std::move(*hosts));
    } else {
      problem = "invalid host in its output: " + hosts.error().message;
    }
  }
  // The script's stderr usually explains the failure.
  if (!problem.empty()) {
    const std::string_view said = trim(complaint_);
    if (!said.empty()) {
      const std::size_t shown = std::min(said.size(), kShownComplaint);
      problem += "; it said: " + std::string(said.substr(said.size() - shown));
    }
    // The shell says that there is no such program.
    if (const auto words = split_shell_words(options_.script)) {
      problem += carriage_return_note(*words);
    }
    handlers_.on_failure(std::move(problem));
  }
  if (!stopped_) next_ = loop_.call_after(options_.interval, [this] { run(); });
}

}  // namespace hora::launcher::elastic
