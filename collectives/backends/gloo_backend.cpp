// SPDX-License-Identifier: Apache-2.0
// PeerLinks over the Gloo library: TCP between any two ranks of the world.
//
// Compiled into a module of its own, since Gloo brings its own shared libraries and C++ runtime.
// This file uses only Gloo's connections and buffers; the algorithms are the runtime's. Gloo's
// exceptions end here.
#include <netinet/in.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include <gloo/config.h>
#include <gloo/context.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "collectives/backend.h"
#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/broken_pipe.h"
#include "collectives/backends/registry.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/threads.h"

namespace hora::collectives {
namespace {

// Gloo's own timeout must not end a transfer: the runtime watches the peers itself, and a slow peer
// is not an error.
constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);
constexpr std::chrono::milliseconds kLook{50};  // at whether the world is ending

// A Gloo address as it travels between the ranks; plain data of fixed size.
struct AddressRecord {
  std::uint32_t length = 0;
  char bytes[gloo::transport::Address::kMaxByteSize] = {};
};

// A connection of this rank to every other one.
class Mesh : public gloo::Context {
 public:
  Mesh(int rank, int size)
      : gloo::Context(rank, size), addresses_(static_cast<std::size_t>(size)) {}

  // Learns where the others listen. Collective over the world. Passes Gloo's exceptions on to the
  // caller, as connect_to_all() does.
  bool meet(std::shared_ptr<gloo::transport::Device> device, const GroupContext& group,
            ErrorText& error) {
    device_ = std::move(device);
    setTimeout(std::chrono::milliseconds(group.timeout_ms));
    // Gloo's own connectFullMesh() would need a store; the exchange of the runtime replaces it.
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(getTimeout());
    // Of each rank's pairs, that with rank p is number p, since there is one with itself.
    for (int peer = 0; peer < size; ++peer) transportContext_->createPair(peer);
    return address_of(rank).getSeq() == rank ? learn_sockets(group, error)
                                             : learn_pairs(group, error);
  }

  // To all, in the order of the ranks, which is the same everywhere: each waits for the peer. On a
  // thread of its own, because only close_all() ends Gloo's wait for a peer that has died.
  bool connect_to_all(Services& services, ErrorText& error) {
    std::packaged_task<void()> task([this] {
      for (int peer = 0; peer < size; ++peer) {
        if (peer != rank) getPair(peer)->connect(addresses_[static_cast<std::size_t>(peer)]);
      }
    });
    std::future<void> connected = task.get_future();
    auto thread = os::start_service_thread("hora-connect", std::ref(task));
    if (!thread) return error.set("%s", thread.error().message.c_str());
    bool is_ending = false;
    while (connected.wait_for(kLook) != std::future_status::ready) {
      if (is_ending || !services.is_ending()) continue;
      is_ending = true;
      close_all();
    }
    thread->join();
    addresses_ = {};
    if (is_ending) return error.set("the job is ending");
    connected.get();
    return true;
  }

  void close_all() noexcept {
    try {
      closeConnections();
    } catch (const std::exception&) {
      // A broken connection is as good as closed.
    }
  }

 private:
  using Address = gloo::transport::tcp::Address;

  Address address_of(int peer) { return Address(getPair(peer)->address().bytes()); }

  // One socket listens for all pairs, and an address is that of the socket and the pair's number.
  bool learn_sockets(const GroupContext& group, ErrorText& error) {
    const sockaddr_storage mine = address_of(rank).getSockaddr();
    const std::size_t bytes =
        mine.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    return learn(group, &mine, bytes, false, error, [&](int peer, const void* theirs) {
      sockaddr_storage socket{};
      std::memcpy(&socket, theirs, bytes);
      addresses_[static_cast<std::size_t>(peer)] = Address(socket, rank).bytes();
      return true;
    });
  }

  // Older Gloo, such as that of Debian 12: each pair listens at a socket of its own.
  bool learn_pairs(const GroupContext& group, ErrorText& error) {
    std::vector<AddressRecord> mine(static_cast<std::size_t>(size));
    for (int peer = 0; peer < size; ++peer) {
      const std::vector<char> bytes = getPair(peer)->address().bytes();
      AddressRecord& record = mine[static_cast<std::size_t>(peer)];
      if (bytes.size() > sizeof record.bytes) return error.set("a Gloo address is too long");
      record.length = static_cast<std::uint32_t>(bytes.size());
      std::memcpy(record.bytes, bytes.data(), bytes.size());
    }
    return learn(group, mine.data(), sizeof(AddressRecord), true, error,
                 [&](int peer, const void* theirs) {
                   AddressRecord record;
                   std::memcpy(&record, theirs, sizeof record);
                   if (record.length > sizeof record.bytes) return false;
                   addresses_[static_cast<std::size_t>(peer)].assign(record.bytes,
                                                                     record.bytes + record.length);
                   return true;
                 });
  }

  template <typename Keep>
  bool learn(const GroupContext& group, const void* mine, std::size_t bytes, bool bytes_to_each,
             ErrorText& error, Keep keep) {
    const void* const* theirs = nullptr;
    const std::size_t* lengths = nullptr;
    if (!group.services->exchange(mine, bytes, bytes_to_each, &theirs, &lengths, error)) {
      return false;
    }
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      if (lengths[peer] != bytes || !keep(peer, theirs[peer])) {
        return error.set("rank %d sent no Gloo address", peer);
      }
    }
    return true;
  }

  std::vector<std::vector<char>> addresses_;  // by rank, until they are connected
};

class GlooLinks final : public PeerLinks {
 public:
  explicit GlooLinks(std::shared_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}

  Ticket post_send(int rank, std::uint64_t tag, const void* data,
                   std::size_t bytes) noexcept override {
    return post(rank, tag, const_cast<void*>(data), bytes, true);
  }

  Ticket post_receive(int rank, std::uint64_t tag, void* data,
                      std::size_t bytes) noexcept override {
    return post(rank, tag, data, bytes, false);
  }

  bool wait(Ticket ticket, ErrorText& error) noexcept override {
    // Ticket 0, and any ticket after a failure, is not in the table and reports the first failure.
    const auto found = transfers_.find(ticket);
    if (!failed_ && found != transfers_.end() && wait_for(found->second, failure_)) {
      transfers_.erase(found);
      return true;
    }
    failed_ = true;
    error = failure_;
    // No other transfer may touch its memory any more, since it goes back to its owner: Gloo would
    // continue to send from it and end the process when it is gone. Destroying the buffers stops
    // them.
    transfers_.clear();
    return false;
  }

  void abort() noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    if (waiting_ == nullptr) return;
    try {
      // The mutex keeps wait_for() from destroying the buffer meanwhile.
      waiting_->abortWaitRecv();
      waiting_->abortWaitSend();
    } catch (const std::exception&) {
      // The wait has ended on its own.
    }
  }

  void destroy() noexcept override {
    const NoBrokenPipe quiet;
    transfers_.clear();
    mesh_->close_all();
    delete this;
  }

 private:
  struct Transfer {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    bool is_send = false;
  };

  // A failed post returns ticket 0; the next wait() returns the reason.
  Ticket post(int rank, std::uint64_t tag, void* data, std::size_t bytes, bool is_send) noexcept {
    const NoBrokenPipe quiet;
    try {
      Transfer transfer{mesh_->createUnboundBuffer(data, bytes), is_send};
      if (is_send) {
        transfer.buffer->send(rank, tag);
      } else {
        transfer.buffer->recv(rank, tag);
      }
      const Ticket ticket = ++last_ticket_;
      transfers_.emplace(ticket, std::move(transfer));
      return ticket;
    } catch (const std::bad_alloc& failure) {
      if (!failed_) report_to(failure, failure_);
    } catch (const std::exception& failure) {
      if (!failed_) failure_.set("%s", failure.what());
    }
    failed_ = true;
    return 0;
  }

  bool wait_for(Transfer& transfer, ErrorText& error) noexcept {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      // Checked under the mutex: abort() either finds waiting_ or has set aborted_ before.
      if (aborted_) return error.set("the job is ending");
      waiting_ = transfer.buffer.get();
    }
    bool done = false;
    try {
      done = transfer.is_send ? transfer.buffer->waitSend(kForEver)
                              : transfer.buffer->waitRecv(kForEver);
      if (!done) error.set("the job is ending");
    } catch (const std::exception& failure) {
      error.set("%s", failure.what());
    }
    // After this the buffer may be destroyed.
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_ = nullptr;
    return done;
  }

  std::shared_ptr<Mesh> mesh_;
  std::map<Ticket, Transfer> transfers_;
  Ticket last_ticket_ = 0;
  bool failed_ = false;
  ErrorText failure_;  // the first failure

  std::mutex mutex_;  // guards the two members below
  gloo::transport::UnboundBuffer* waiting_ = nullptr;
  bool aborted_ = false;
};

const char* version() noexcept {
  static const std::string text = std::to_string(GLOO_VERSION_MAJOR) + "." +
                                  std::to_string(GLOO_VERSION_MINOR) + "." +
                                  std::to_string(GLOO_VERSION_PATCH);
  return text.c_str();
}

// Gloo starts its thread here, which the kernel may refuse for the moment.
std::shared_ptr<gloo::transport::Device> create_device(const gloo::transport::tcp::attr& where) {
  std::shared_ptr<gloo::transport::Device> device;
  const auto attempt = [&] {
    try {
      device = gloo::transport::tcp::CreateDevice(where);
      return 0;
    } catch (const std::system_error& refused) {
      if (refused.code().value() != EAGAIN) throw;
      return EAGAIN;
    }
  };
  const int refused = os::retry_while_refused(attempt, Clock::now() + os::kThreadTimeout);
  if (refused != 0) {
    throw std::system_error(refused, std::generic_category(), "starting Gloo's thread");
  }
  return device;
}

PeerLinks* connect(const GroupContext& group, ErrorText& error) noexcept {
  const NoBrokenPipe quiet;  // Gloo's own thread starts here and inherits the signal mask
  try {
    // Bound to one address: Gloo would otherwise take the one of the host's name.
    gloo::transport::tcp::attr where;
    where.hostname = group.address;
    auto device = create_device(where);
    auto mesh = std::make_shared<Mesh>(group.rank, group.world_size);
    if (!mesh->meet(std::move(device), group, error)) return nullptr;
    if (!mesh->connect_to_all(*group.services, error)) return nullptr;
    return new GlooLinks(std::move(mesh));
  } catch (const std::exception& failure) {
    error.set("connecting the ranks with Gloo over %s: %s", group.address, failure.what());
    return nullptr;
  }
}

constexpr auto kRows = rows_for_all_operations({.score = 100});
constexpr BackendDescriptor kDescriptor =
    with_traits(peer_links_descriptor("gloo", "Gloo", kRows, connect, version), kAnyThread);

}  // namespace
}  // namespace hora::collectives

extern "C" __attribute__((visibility("default"))) const hora::collectives::BackendDescriptor*
hora_backend_descriptor(hora::collectives::ErrorText& /*why_not*/) {
  return &hora::collectives::kDescriptor;
}
