// SPDX-License-Identifier: Apache-2.0
// Segment: one DoorbellLine per rank, padded to a page; then two rings per rank (from and to rank
// 0); then the memory of the fast path.
//
// Sleeping follows one protocol everywhere. The sleeper stores `asleep`, issues a seq_cst fence,
// and looks once more; the sender publishes, issues a seq_cst fence, and loads `asleep`. At least
// one of the two sees the other's store, so no wake-up is lost.
#include "collectives/control/ring_channel.h"

#include <algorithm>
#include <utility>

namespace hora::collectives {

namespace {

// The watchdog (runtime/watchdog.h) wakes the sleeper when a link ends. These intervals only bound
// the delay where there is no watchdog, and how soon a second end shows after a first one.
constexpr std::chrono::milliseconds kLookAtLinks{1000};
constexpr std::chrono::milliseconds kLookOften{20};

std::size_t lines_bytes(int size) {
  return (static_cast<std::size_t>(size) * sizeof(DoorbellLine) + 4095) / 4096 * 4096;
}

}  // namespace

std::size_t RingLayout::bytes() const {
  return lines_bytes(size) + 2 * static_cast<std::size_t>(size) * sizeof(ByteRing::Memory) +
         ShmFastPath::memory_bytes(size);
}

DoorbellLine* RingLayout::doorbell(void* base, int rank) const {
  return static_cast<DoorbellLine*>(base) + rank;
}

ByteRing::Memory* RingLayout::to_worker(void* base, int rank) const {
  auto* rings = reinterpret_cast<ByteRing::Memory*>(static_cast<char*>(base) + lines_bytes(size));
  return rings + 2 * rank;
}

ByteRing::Memory* RingLayout::to_coordinator(void* base, int rank) const {
  return to_worker(base, rank) + 1;
}

void* RingLayout::fast_path(void* base) const { return to_worker(base, size); }

RingChannel::RingChannel(std::unique_ptr<ControlChannel> links, Segment segment, int rank, int size,
                         bool spin)
    : links_(std::move(links)), segment_(std::move(segment)), rank_(rank), size_(size) {
  spinner_.enable(spin);
  spread_.enable(spin);
  const RingLayout layout{size};
  void* const base = segment_.data();
  doorbells_ = layout.doorbell(base, 0);
  own_ = doorbells_ + rank;
  fast_path_.attach(layout.fast_path(base), rank, size, spin,
                    [this](int other) { call(doorbells_[other]); });
  // A star: rank 0 has a peer for every rank, each other rank only rank 0.
  for (int other = 0; other < size; ++other) {
    if (other == rank || (rank != 0 && other != 0)) continue;
    Peer peer;
    peer.rank = other;
    peer.doorbell = layout.doorbell(base, other);
    const int worker = rank == 0 ? other : rank;
    peer.in.attach(rank == 0 ? layout.to_coordinator(base, worker)
                             : layout.to_worker(base, worker));
    peer.out.attach(rank == 0 ? layout.to_worker(base, worker)
                              : layout.to_coordinator(base, worker));
    peers_.push_back(std::move(peer));
  }
}

RingChannel::Peer* RingChannel::find(int rank) {
  for (Peer& peer : peers_) {
    if (peer.rank == rank) return &peer;
  }
  return nullptr;
}

std::atomic<std::uint32_t>& RingChannel::doorbell(Waiter waiter) const {
  return own_->doorbells[static_cast<std::uint32_t>(waiter) - 1];
}

// Wakes the rank if it sleeps. Either it sees what was published before when it looks once more
// before it sleeps, or this thread sees that it sleeps.
void RingChannel::call(DoorbellLine& line) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (line.asleep.load(std::memory_order_relaxed) == 0) return;
  // The exchange picks one waker among several, so that one sleep costs one futex call. The modulo
  // keeps a corrupt value in shared memory from reaching beyond the array.
  const std::uint32_t waiter = line.asleep.exchange(0, std::memory_order_acq_rel);
  if (waiter == 0) return;
  std::atomic<std::uint32_t>& doorbell = line.doorbells[(waiter - 1) % 2];
  // The counter changes before the wake-up: a sleeper that has not entered the futex yet finds
  // another value than its ticket and does not sleep.
  doorbell.fetch_add(1, std::memory_order_acq_rel);
  wake_all(doorbell);
}

// A message in its ring.
void RingChannel::ring(Peer& peer) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t asleep = peer.doorbell->asleep.load(std::memory_order_relaxed);
  if (asleep != static_cast<std::uint32_t>(Waiter::kIdleThread)) return call(*peer.doorbell);
  peer.unrung = any_unrung_ = true;
}

// The ones that still sleep.
void RingChannel::ring_idle_peers() {
  if (!std::exchange(any_unrung_, false)) return;
  for (Peer& peer : peers_) {
    if (std::exchange(peer.unrung, false)) call(*peer.doorbell);
  }
}

void RingChannel::send(int rank, std::string_view bytes) {
  Peer* peer = find(rank);
  if (peer == nullptr) return;
  append_frame(peer->backlog, bytes);
  push_backlog(*peer);
  // A peer that is gone may still read its ring: give it what fits, and drop the rest.
  if (peer->gone) drop_backlog(*peer);
}

void RingChannel::drop_backlog(Peer& peer) {
  peer.backlog.clear();
  peer.sent = 0;
}

void RingChannel::push_backlog(Peer& peer) {
  if (peer.backlog.empty()) return;
  for (bool has_rung = false;;) {
    const std::size_t count = peer.out.write(std::string_view(peer.backlog).substr(peer.sent));
    peer.sent += count;
    if (count > 0) ring(peer);
    if (peer.sent == peer.backlog.size()) break;
    if (has_rung) return;
    // Try once more after asking for room: the reader may have made room just before.
    peer.out.want_room();
    has_rung = true;
  }
  drop_backlog(peer);
}

Status RingChannel::flush(int rank, Deadline deadline) {
  std::vector<Peer*> full;
  while (true) {
    const std::uint32_t ticket = ticket_of(waiter_);
    full.clear();
    for (Peer& peer : peers_) {
      if ((rank >= 0 && peer.rank != rank) || peer.gone) continue;
      push_backlog(peer);
      if (!peer.backlog.empty()) full.push_back(&peer);
    }
    ring_idle_peers();
    if (full.empty()) return Ok{};
    // A reader that has died never makes room, and only the links show that.
    ask_links(early_);
    if (Clock::now() >= deadline) {
      return make_error(ErrorCode::kTimedOut, "rank " + std::to_string(full.front()->rank) +
                                                  " does not read its control messages");
    }
    // Other messages that arrive meanwhile also ring the doorbell and stay in their rings for
    // poll().
    own_->asleep.store(static_cast<std::uint32_t>(waiter_), std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const bool stuck = std::all_of(full.begin(), full.end(), [](const Peer* peer) {
      return !peer->gone && !peer->out.has_room();
    });
    // kLookOften: the reader's end would not ring this doorbell.
    if (stuck) sleep_on(doorbell(waiter_), ticket, std::min(deadline, Clock::now() + kLookOften));
    unpark();
  }
}

void RingChannel::read_from(Peer& peer, std::vector<Incoming>& messages) {
  if (peer.in.empty()) return;
  peer.in.read([&](std::string_view bytes) { peer.frames.append(bytes); });
  // Reading has made room; a writer with a backlog may be asleep for it.
  if (peer.in.take_writer_waits()) call(*peer.doorbell);
  while (std::optional<std::string> message = peer.frames.next()) {
    messages.push_back({peer.rank, false, std::move(*message)});
  }
}

// The links report the ends of ranks. What such a rank said before is in its ring: read that first.
void RingChannel::ask_links(std::vector<Incoming>& messages) {
  for (Incoming& each : links_->poll(kNoWait)) {
    Peer* peer = each.gone ? find(each.rank) : nullptr;
    if (peer == nullptr) {
      messages.push_back(std::move(each));
      continue;
    }
    read_from(*peer, messages);
    peer->gone = true;
    drop_backlog(*peer);
    any_gone_ = true;
    messages.push_back(std::move(each));
  }
}

std::vector<Incoming> RingChannel::poll(Deadline deadline) {
  std::vector<Incoming> messages = std::exchange(early_, {});
  while (true) {
    // The ticket comes before the look at the rings: whatever arrives later changes the doorbell,
    // and sleep() returns at once.
    const std::uint32_t ticket = ticket_of(waiter_);
    const bool woken =
        // The plain load spares the exchange, which takes the cache line, in the usual case.
        woken_.load(std::memory_order_relaxed) && woken_.exchange(false, std::memory_order_acq_rel);
    for (Peer& peer : peers_) {
      read_from(peer, messages);
      push_backlog(peer);
    }
    if (woken) ask_links(messages);
    if (woken || !messages.empty() || deadline == kNoWait || fast_path_.has_work()) return messages;
    const auto now = Clock::now();
    if (now >= deadline) return messages;
    const Deadline look = next_look(deadline);
    if (!watch() && park(waiter_)) sleep(waiter_, ticket, look);
    unpark();
    if (Clock::now() >= look) ask_links(messages);
  }
}

Deadline RingChannel::next_look(Deadline deadline) const {
  return std::min(deadline, Clock::now() + (any_gone_ ? kLookOften : kLookAtLinks));
}

void RingChannel::wake() {
  // Release pairs with the exchange in poll(): what the caller did before is visible to the driver.
  woken_.store(true, std::memory_order_release);
  call(*own_);
}

bool RingChannel::something_came() {
  if (fast_path_.has_work() || woken_.load(std::memory_order_acquire) || !early_.empty())
    return true;
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return !peer.in.empty() || (!peer.backlog.empty() && peer.out.has_room());
  });
}

std::uint32_t RingChannel::ticket_of(Waiter waiter) const {
  return doorbell(waiter).load(std::memory_order_acquire);
}

bool RingChannel::watch() {
  const auto cpu_of = [this](int rank) -> CpuOfRank& { return doorbells_[rank].cpu; };
  const auto awaited = [this](int rank) { return !fast_path_.has_posted(rank); };
  const auto elsewhere = [&] {
    return fast_path_.posted() && CoreSpread::are_elsewhere(cpu_of, size_, rank_, awaited);
  };
  const bool came = spinner_.until([this] { return something_came(); }, elsewhere);
  spread_.waited(cpu_of, size_, rank_, spinner_.successes(), spinner_.losses());
  return came;
}

bool RingChannel::park(Waiter waiter) {
  own_->asleep.store(static_cast<std::uint32_t>(waiter), std::memory_order_relaxed);
  fast_path_.rest(true);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!something_came()) {
    ring_idle_peers();
    return true;
  }
  unpark();
  return false;
}

void RingChannel::unpark() {
  own_->asleep.store(0, std::memory_order_relaxed);
  fast_path_.rest(false);
}

bool RingChannel::may_stay_parked() const {
  // Posted operations, even "nothing" for others, have to ring the thread when they are decided.
  return !thread_was_rung() && !fast_path_.resting() && !fast_path_.posted();
}

bool RingChannel::thread_was_rung() const {
  const std::uint32_t asleep = own_->asleep.load(std::memory_order_relaxed);
  return asleep != static_cast<std::uint32_t>(Waiter::kThread) &&
         asleep != static_cast<std::uint32_t>(Waiter::kIdleThread);
}

void RingChannel::sleep(Waiter waiter, std::uint32_t ticket, Deadline deadline) {
  // The futex compares the word once more in the kernel, atomically with going to sleep.
  if (ticket_of(waiter) != ticket) return;
  sleep_on(doorbell(waiter), ticket, deadline);
  // A caller sleeps while it drives. The runtime's thread has let go of the channel before.
  if (waiter != Waiter::kCaller) return;
  spread_.woken([this](int rank) -> CpuOfRank& { return doorbells_[rank].cpu; }, size_, rank_,
                spinner_.successes());
}

void RingChannel::ring(Waiter waiter) {
  doorbell(waiter).fetch_add(1, std::memory_order_acq_rel);
  wake_all(doorbell(waiter));
}

}  // namespace hora::collectives
