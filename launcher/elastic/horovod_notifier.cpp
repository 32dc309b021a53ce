// SPDX-License-Identifier: Apache-2.0
// The real Horovod's workers listen for a message when the hosts change. A thread of its own sends
// it: a worker that hangs must not delay the launcher.
#include "launcher/elastic/horovod_notifier.h"

#include <array>
#include <chrono>
#include <utility>

#include "rendezvous/net/socket.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/threads.h"

namespace hora::launcher::elastic {

namespace {

constexpr std::string_view kComponent = "elastic";
constexpr std::chrono::seconds kTimeout{3};  // for one address

// Connects, sends the request and waits for a signed answer, which proves that the right worker got
// it.
Status converse(const Endpoint& endpoint, const std::string& key, const std::string& message) {
  const Deadline deadline = Clock::now() + kTimeout;
  auto fd = net::connect_tcp(endpoint, deadline);
  if (!fd) return std::move(fd).error();
  HORA_TRY(net::send_all(fd->get(), message, deadline));
  std::string answer;
  std::array<char, 4096> chunk;
  while (true) {
    const auto got = net::receive_some(fd->get(), chunk.data(), chunk.size(), deadline);
    if (!got) return got.error();
    if (*got == 0) return make_error(ErrorCode::kFailed, "the worker closed without an answer");
    answer.append(chunk.data(), *got);
    const auto whole = read_signed_message(key, answer);
    if (!whole) return whole.error();
    if (*whole) return Ok{};
  }
}

}  // namespace

Result<std::unique_ptr<HorovodNotifier>> HorovodNotifier::start() {
  std::unique_ptr<HorovodNotifier> self(new HorovodNotifier);
  auto thread =
      os::start_service_thread("hora-notify", [notifier = self.get()] { notifier->run(); });
  if (!thread) return std::move(thread).error();
  self->thread_ = std::move(*thread);
  return self;
}

HorovodNotifier::~HorovodNotifier() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// A worker publishes its addresses and key in the rendezvous store.
void HorovodNotifier::remember(const std::string& slot, const std::string& value) {
  auto contact = parse_worker_contact(value);
  if (!contact) return os::log_warn(kComponent, slot + ": " + contact.error().message);
  contacts_[slot] = std::move(*contact);
}

// A worker that has not registered (yet) learns of the change at its next rendezvous.
void HorovodNotifier::notify(const std::string& slot, int result) {
  const auto found = contacts_.find(slot);
  if (found == contacts_.end()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    orders_.push_back({found->second, hosts_updated_message(found->second.key, seconds, result)});
  }
  changed_.notify_all();
}

void HorovodNotifier::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !orders_.empty(); });
    if (stopped_) return;
    const Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    for (const Endpoint& endpoint : order.contact.endpoints) {
      // An address of another interface may lead to another process; only the holder of the key
      // counts.
      const auto done = converse(endpoint, order.contact.key, order.message);
      if (done) break;
      os::log_debug(kComponent,
                    "notifying " + format_endpoint(endpoint) + ": " + done.error().message);
    }
    lock.lock();
  }
}

}  // namespace hora::launcher::elastic
