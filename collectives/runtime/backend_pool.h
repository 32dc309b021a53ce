// SPDX-License-Identifier: Apache-2.0
// The backends of this job: which ones, agreed by all ranks, and an instance for each process set.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/algorithms/point_to_point.h"
#include "collectives/backends/hierarchical_backend.h"
#include "collectives/control/oob_allgather.h"
#include "collectives/runtime/process_set.h"
#include "collectives/runtime/settings.h"
#include "collectives/runtime/world.h"
#include "collectives/selection/select.h"

namespace hora::collectives {

// An error if HORA_BACKENDS names one that Hora does not know, built or not.
Status check_backend_names(const Settings& settings);
// The ids of the backends that probe well in this process, in the order of the registry.
std::vector<std::string> usable_backends(const Settings& settings);

struct DestroyLinks {
  void operator()(PeerLinks* links) const { links->destroy(); }
};

// Of the first of these backends that can listen before the ranks meet.
struct ListeningLinks {
  static ListeningLinks open(const Settings& settings, const std::string& address,
                             const std::vector<std::string>& backends);

  const BackendDescriptor* backend = nullptr;
  std::unique_ptr<PeerLinks, DestroyLinks> links;
  std::string card;  // for the other ranks; empty: it cannot
};

class BackendPool {
 public:
  // `oob` may be null in a world of one.
  BackendPool(const World& world, OobAllgather* oob);
  ~BackendPool();
  BackendPool(const BackendPool&) = delete;
  BackendPool& operator=(const BackendPool&) = delete;

  // From host to host, as all ranks know it alike; 0: not known. Before the first set.
  void set_round_trip(std::chrono::microseconds round_trip) { round_trip_ = round_trip; }
  // Begins to connect them, if all ranks listen. What the first set does not use is closed.
  void begin(ListeningLinks listening);
  // Collective over the world, also for ranks that are not members. A backend that cannot be made
  // on one rank is left out on all of them. An error when none is left for a set.
  Status create_backends(ProcessSet& set);
  void destroy_backends(ProcessSet& set);

  const SelectionTable& table() const { return table_; }
  // Agreed backends that are in use, by id; and why others are not. For people.
  std::vector<std::string> enabled() const;
  std::vector<std::pair<std::string, std::string>> left_out() const;
  // For notes() and, as a warning, for the log, once however often it is reported. Where all ranks
  // know the same, one of them is enough to log it. Any thread.
  void note_once(const std::string& id, const std::string& sentence, bool logs);
  // How backends work for the world, by id. For people.
  std::vector<std::pair<std::string, std::string>> notes() const;

  // Interrupts whatever blocks in a backend. Any thread.
  void abort_all();
  // What fails from now on may have been broken off.
  bool aborted() const;
  // In an elastic job: ranks could not be connected, and another one than this reported it first.
  // That one is assumed to be the cause, and the others go on without it.
  bool goes_on_without_another() const { return goes_on_without_; }
  // Any thread may call the backends in use, one at a time.
  bool any_thread() const;

 private:
  // Messages of a backend go to the log, and to notes().
  class EntryNotices final : public Notices {
   public:
    EntryNotices(BackendPool& pool, std::string id) : pool_(pool), id_(std::move(id)) {}
    void warn(const char* sentence) noexcept override;

   private:
    BackendPool& pool_;
    std::string id_;
  };

  struct Entry {
    std::string id;
    const BackendDescriptor* descriptor = nullptr;
    Scope scope = Scope::kHosts;
    PeerLinks* links = nullptr;  // of the world, once connected
    bool dropped = false;
    std::unique_ptr<EntryNotices> notices;  // backends have its address
  };

  // Takes the objection of this rank, and returns the first one of all.
  using Vote = std::function<Result<std::string>(const std::string& mine)>;

  Status make_backends(ProcessSet& set);
  Result<BackendPtr> create(Entry& entry, ProcessSet& set);
  Entry* connected();
  // Out of one backend within hosts and the links between them, where the set can gain by it; the
  // vote may be what connects these.
  Status compose(ProcessSet& set, Entry& between, const Vote& vote);
  void keep(ProcessSet& set, SetBackend backend);
  Result<std::string> first_objection(const std::string& mine);
  bool wanted_for(const Entry& entry, const ProcessSet& set) const;
  void drop(Entry& entry, std::string why);
  void rebuild_table();
  PointToPoint::Options options_for(int ranks) const;

  const World& world_;
  OobAllgather* oob_;
  std::chrono::microseconds round_trip_{0};
  ListeningLinks listening_;
  std::vector<Entry> entries_;
  SelectionTable table_;
  bool goes_on_without_ = false;
  mutable std::mutex mutex_;    // guards what follows
  std::vector<Backend*> live_;  // to abort
  std::vector<PeerLinks*> links_;
  std::vector<std::string> enabled_;
  std::vector<std::pair<std::string, std::string>> left_out_;
  std::vector<std::pair<std::string, std::string>> notes_;
  bool aborted_ = false;
  bool any_thread_ = true;
};

}  // namespace hora::collectives
