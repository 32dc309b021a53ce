// SPDX-License-Identifier: Apache-2.0
// getaddrinfo() has no timeout and cannot be cancelled, so questions run on up to 16 detached
// threads that share ownership of the state. close() forgets the questions; a thread that still
// waits for a name server finds the state closed when it returns, and ends.
#include "launcher/transports/name_resolver.h"

#include <condition_variable>
#include <deque>
#include <mutex>

#include "rendezvous/net/resolve.h"
#include "rendezvous/os/service_thread.h"

namespace hora::launcher {

namespace {
constexpr int kMaxThreads = 16;  // each may sit on a silent name server
}

struct NameResolver::Shared {
  struct Question {
    std::string host;
    std::uint16_t port;
    Answer answer;
  };
  std::mutex mutex;  // held while answers are given, so that none comes after close
  std::condition_variable wake_up;
  std::deque<Question> questions;
  int threads = 0;
  int idle = 0;
  bool closed = false;
};

NameResolver::NameResolver() : shared_(std::make_shared<Shared>()) {}

NameResolver::~NameResolver() { close(); }

void NameResolver::close() {
  std::lock_guard lock(shared_->mutex);
  shared_->closed = true;
  shared_->questions.clear();
  shared_->wake_up.notify_all();
}

void NameResolver::work(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    ++shared->idle;
    shared->wake_up.wait(lock, [&] { return shared->closed || !shared->questions.empty(); });
    --shared->idle;
    if (shared->closed) return;
    auto question = std::move(shared->questions.front());
    shared->questions.pop_front();
    lock.unlock();
    auto endpoints = net::resolve_host(question.host, question.port);
    lock.lock();
    if (!shared->closed) question.answer(std::move(endpoints));
  }
}

// Numeric addresses never need a thread or the lock.
void NameResolver::resolve(const std::string& host, std::uint16_t port, Answer answer) {
  if (auto numeric = parse_ip_address(host)) {
    return answer(std::vector<Endpoint>{{*numeric, port}});
  }
  std::lock_guard lock(shared_->mutex);
  if (shared_->closed) return;
  shared_->questions.push_back({host, port, std::move(answer)});
  // An idle thread takes the question, or all threads are busy and it stays in the queue.
  if (static_cast<int>(shared_->questions.size()) <= shared_->idle ||
      shared_->threads == kMaxThreads) {
    shared_->wake_up.notify_one();
    return;
  }
  // Where one thread exists it answers every question in the end, so do not wait for another one.
  const auto patience = shared_->threads == 0 ? os::kThreadPatience : std::chrono::seconds(0);
  auto thread = os::start_service_thread(
      "hora-names", [shared = shared_] { work(shared); }, patience);
  if (thread) {
    thread->detach();
    ++shared_->threads;
    // No thread at all could be started: answer with the error, or the host would wait for its
    // timeout.
  } else if (shared_->threads == 0) {
    shared_->questions.back().answer(std::move(thread).error());
    shared_->questions.pop_back();
  }
}

}  // namespace hora::launcher
