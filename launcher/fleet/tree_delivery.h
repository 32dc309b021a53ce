// SPDX-License-Identifier: Apache-2.0
// The user's folders and Python environment on their way: offers them to hosts, and packs the parts
// that hosts lack. A part is packed when the first host lacks it, and no faster than hosts take
// them: a tree may be larger than this machine's memory. On the event loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launcher/fleet/part_packer.h"
#include "launcher/fleet/ship_files.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class TreeDelivery {
 public:
  struct Handlers {
    // A part that this host lacks.
    std::function<void(int host, const std::string& hash, PartPacker::Frames frames)> deliver;
    // A file cannot be read any more, or has changed: not the fault of this host, which waits.
    std::function<void(int host, Error error)> on_unreadable;
    // What was delivered and has not reached the hosts.
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
