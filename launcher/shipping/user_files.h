// SPDX-License-Identifier: Apache-2.0
// What --ship and --ship-env name: read and hashed once for all hosts, offered to them, and packed
// part by part where they lack it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launcher/parts/python_environment.h"
#include "launcher/parts/user_tree.h"
#include "launcher/plan/job_spec.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// What --ship and --ship-env name: files, packed once for all hosts, and folders, read and hashed.
// Never changes once it is made: the links of all hosts share the frames, which live as long as the
// last of them needs.

class ShipFiles {
 public:
  ShipFiles() = default;
  // Reads and packs them. For large files this takes longer than agents tolerate silence, so it
  // happens before any host is connected. `memory_folder` is the launcher's own: TreeMemory.
  ShipFiles(const JobSpec& spec, const std::string& memory_folder);

  // Why something could not be packed.
  const Status& status() const { return status_; }
  const std::vector<std::shared_ptr<const std::string>>& frames() const { return frames_; }
  // All folders together; without parts: there is none.
  const UserTree& tree() const { return tree_; }
  const std::optional<PythonEnvironment>& environment() const { return environment_; }
  const UserTree& environment_tree() const { return environment_tree_; }
  // Whose parts there are: "--ship", "--ship-env", or both.
  std::string options() const;
  bool has_parts() const { return !tree_.parts.empty() || !environment_tree_.parts.empty(); }
  // Of either tree; null: neither has it.
  const TreePart* find_part(const std::string& hash) const;
  // A part could not be packed as it was read: nothing that is remembered counts any more.
  void forget() const;

 private:
  Status pack_environment(const JobSpec& spec, const std::string& memory_folder);
  Status pack(const JobSpec& spec, const std::string& memory_folder);

  std::vector<std::shared_ptr<const std::string>> frames_;
  UserTree tree_;
  std::optional<PythonEnvironment> environment_;
  UserTree environment_tree_;
  std::vector<TreeMemory> memories_;
  Status status_ = Ok{};
};

// Packs parts of the user's folders in a few threads, since a part may have gigabytes, and the loop
// has hosts to serve meanwhile. Packed data is bounded: one part for each thread, until the loop
// has taken it. On the loop's thread.

class PartPacker {
 public:
  using Frames = std::shared_ptr<const std::string>;
  // Called on the loop's thread, once for each part.
  using Handler = std::function<void(const TreePart& part, Result<Frames> frames)>;

  PartPacker(os::EventLoop& loop, Handler on_packed);
  // Ends within the time that a piece of a file takes.
  ~PartPacker();
  PartPacker(const PartPacker&) = delete;
  PartPacker& operator=(const PartPacker&) = delete;

  // `part` must outlive this object.
  void pack(const TreePart& part);
  std::uint64_t read_bytes() const { return shared_->state.read_bytes; }  // so far

 private:
  // Shared by the threads and the loop; a task of the loop may outlive this object.
  struct Shared {
    std::mutex mutex;
    std::condition_variable more;
    std::deque<const TreePart*> waiting;
    PackingState state;
    Handler on_packed;
  };
  static void work(os::EventLoop& loop, const std::shared_ptr<Shared>& shared);

  os::EventLoop& loop_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<std::thread> threads_;
};

// The user's folders and Python environment on their way: offers them to hosts, and packs the parts
// that hosts lack. A part is packed when the first host lacks it, and no faster than hosts take
// them: a tree may be larger than this machine's memory. On the event loop's thread.

class TreeDelivery {
 public:
  struct Handlers {
    // A part that this host lacks.
    std::function<void(int host, const std::string& hash, PartPacker::Frames frames)> deliver;
    // A file cannot be read any more, or has changed: not the fault of this host, which waits.
    std::function<void(int host, Error error)> on_unreadable;
    // Deliveries that have not reached the hosts.
    std::function<std::size_t()> bytes_under_way;
  };

  // `files` must outlive this object; null: there is nothing to offer.
  TreeDelivery(os::EventLoop& loop, const ShipFiles* files, Handlers handlers);

  // The host will answer by a TreeState.
  OfferTree offer(int host);
  void on_state(int host, const TreeState& state);
  // Less is under way than before.
  void pack_more();
  void lost(int host) { waiting_.erase(host); }

  bool awaits_answer(int host) const;
  // Whether everything that the host lacks was delivered.
  bool is_complete(int host) const { return waiting_.count(host) == 0; }
  std::uint64_t read_bytes() const { return packer_.read_bytes(); }  // so far

 private:
  struct Waiting {
    bool answered = false;
    std::size_t parts = 0;
  };
  void on_packed(const TreePart& part, Result<PartPacker::Frames> frames);

  const ShipFiles* files_;
  Handlers handlers_;
  std::map<int, Waiting> waiting_;  // hosts
  // By hash: the hosts that wait for the part.
  std::map<std::string, std::vector<int>> to_pack_;
  std::map<std::string, std::vector<int>> packing_;
  std::size_t packed_ = 0;  // parts, so far
  PartPacker packer_;
};

}  // namespace hora::launcher
