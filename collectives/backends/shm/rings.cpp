// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/shm/rings.h"

#include <errno.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/backends/shm/nodes.h"
#include "collectives/memory/futex.h"

namespace hora::collectives::shm {

namespace {

// Adapts the exchange of the border (plain data) to the Allgather that a Segment needs.
Result<std::vector<std::string>> meet_in(const GroupContext& group, const std::string& mine) {
  const void* const* received = nullptr;
  const std::size_t* lengths = nullptr;
  ErrorText error;
  if (!group.services->exchange(mine.data(), mine.size(), false, &received, &lengths, error)) {
    return make_error(ErrorCode::kInterrupted, error.text);
  }
  std::vector<std::string> all;
  for (int i = 0; i < group.size; ++i) {
    all.emplace_back(static_cast<const char*>(received[i]), lengths[i]);
  }
  return all;
}

}  // namespace

bool Rings::open(const GroupContext& group, ErrorText& error) {
  // The budget for all rings together, at least 1 MiB. plan_layout() takes no more than it can use.
  std::int64_t budget = 64 << 20;
  if (const char* text = group.services->setting("HORA_SHM_BYTES")) {
    budget = std::max<std::int64_t>(std::atoll(text), 1 << 20);
  }
  layout_ = plan_layout(group.size, budget);
  layout_.line_bytes = sizeof(BoardLine);
  auto segment = Segment::open({group.ranks, static_cast<std::size_t>(group.size)}, group.index,
                               static_cast<std::size_t>(layout_.total()),
                               [&](const std::string& mine) { return meet_in(group, mine); });
  if (!segment) return error.set("%s", segment.error().message.c_str());
  segment_ = std::move(*segment);
  base_address_ = static_cast<char*>(segment_.data());
  index_ = group.index;
  board_.attach(reinterpret_cast<BoardLine*>(base_address_), group.index, group.size,
                cores_for(group.local_size));
  // Until look_at_nodes() all ranks count as being on one node.
  order_ = turning_order(std::vector<int>(static_cast<std::size_t>(group.size), kAnyNode), index_);
  return true;
}

// A rank writes its own area, and one other rank or all of them read each byte there. So the area
// belongs on its owner's node.
bool Rings::look_at_nodes(const GroupContext& group, int node, ErrorText& error) {
  const void* const* received = nullptr;
  const std::size_t* lengths = nullptr;
  if (!group.services->exchange(&node, sizeof node, false, &received, &lengths, error)) {
    return false;
  }
  std::vector<int> nodes(static_cast<std::size_t>(size()), kAnyNode);
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (lengths[rank] == sizeof node) std::memcpy(&nodes[rank], received[rank], sizeof node);
  }
  order_ = turning_order(nodes, index_);
  std::string note = "memory: " + name_nodes(nodes, group.ranks);
  const int own = nodes[static_cast<std::size_t>(index_)];
  if (on_several_nodes(nodes) && own != kAnyNode) {
    // Only this rank's own area: each rank places its own.
    const auto bytes = static_cast<std::size_t>(layout_.per_rank());
    note += place_on_node(layout_.rank_area(base_address_, index_), bytes, own, segment_.filled())
                ? "; this rank's rings lie on its own"
                : std::string("; this rank's rings lie where they are first written (mbind: ") +
                      std::strerror(errno) + ")";
  }
  group.services->note(note.c_str());
  return true;
}

}  // namespace hora::collectives::shm
