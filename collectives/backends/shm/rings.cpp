#include "collectives/backends/shm/rings.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "collectives/memory/futex.h"

namespace hora::collectives::shm {

namespace {

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

bool Rings::open(const GroupContext& group, std::int64_t desk_bytes, ErrorText& error) {
  std::int64_t budget = 64 << 20;
  if (const char* text = group.services->setting("HORA_SHM_BYTES")) {
    budget = std::max<std::int64_t>(std::atoll(text), 1 << 20);
  }
  layout_ = plan_layout(group.size, budget);
  layout_.line_bytes = sizeof(BoardLine);
  layout_.desk_bytes = desk_bytes;
  auto segment = Segment::open({group.ranks, static_cast<std::size_t>(group.size)}, group.index,
                               static_cast<std::size_t>(layout_.total()),
                               [&](const std::string& mine) { return meet_in(group, mine); });
  if (!segment) return error.set("%s", segment.error().message.c_str());
  segment_ = std::move(*segment);
  base_address_ = static_cast<char*>(segment_.data());
  index_ = group.index;
  board_.attach(reinterpret_cast<BoardLine*>(base_address_), group.index, group.size,
                cores_for(group.local_size));
  return true;
}

}  // namespace hora::collectives::shm
