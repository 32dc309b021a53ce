// SPDX-License-Identifier: Apache-2.0
// getaddrinfo() has no timeout and cannot be cancelled, so questions run on detached threads that
// share ownership of the state. close() forgets the questions; a thread that still waits for a name
// server finds the state closed when it returns, and ends.
#include "launcher/transports/blocking_calls.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "rendezvous/net/addresses.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher {

struct BlockingCalls::Shared {
  std::mutex mutex;  // held while answers are given, so that none comes after close
  std::condition_variable wake_up;
  std::deque<Question> questions;
  int most_threads = 0;
  int threads = 0;
  int idle = 0;
  bool closed = false;
};

BlockingCalls::BlockingCalls(int most_threads) : shared_(std::make_shared<Shared>()) {
  shared_->most_threads = most_threads;
}

BlockingCalls::~BlockingCalls() { close(); }

void BlockingCalls::close() {
  std::lock_guard lock(shared_->mutex);
  shared_->closed = true;
  shared_->questions.clear();
  shared_->wake_up.notify_all();
}

void BlockingCalls::work(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    ++shared->idle;
    shared->wake_up.wait(lock, [&] { return shared->closed || !shared->questions.empty(); });
    --shared->idle;
    if (shared->closed) return;
    const Question question = std::move(shared->questions.front());
    shared->questions.pop_front();
    lock.unlock();
    const Answer answer = question();
    lock.lock();
    if (!shared->closed) answer();
  }
}

void BlockingCalls::ask(Question question, const Failed& failed) {
  std::lock_guard lock(shared_->mutex);
  if (shared_->closed) return;
  shared_->questions.push_back(std::move(question));
  // An idle thread takes the question, or all threads are busy and it stays in the queue.
  if (static_cast<int>(shared_->questions.size()) <= shared_->idle ||
      shared_->threads == shared_->most_threads) {
    shared_->wake_up.notify_one();
    return;
  }
  // Where one thread exists it answers every question in the end, so do not wait for another one.
  const auto patience = shared_->threads == 0 ? os::kThreadPatience : std::chrono::seconds(0);
  auto thread = os::start_service_thread(
      "hora-ask", [shared = shared_] { work(shared); }, patience);
  if (thread) {
    thread->detach();
    ++shared_->threads;
    // No thread at all could be started: answer with the error, or the host would wait for its
    // timeout.
  } else if (shared_->threads == 0) {
    shared_->questions.pop_back();
    failed(std::move(thread).error());
  }
}

// Numeric addresses never need a thread or the lock.
void BlockingCalls::resolve(const std::string& host, std::uint16_t port, const Endpoints& answer) {
  if (auto numeric = parse_ip_address(host)) {
    return answer(std::vector<Endpoint>{{*numeric, port}});
  }
  ask(
      [host, port, answer]() -> Answer {
        return [answer, endpoints = net::resolve_host(host, port)] { answer(endpoints); };
      },
      [answer](const Error& error) { answer(error); });
}

}  // namespace hora::launcher
