// Collectives among the ranks of one host, through memory that they share.
//
// Each rank has a ring of kDepth chunks to give things to the others, and a ring of parts for what
// it has reduced. The rings are small enough to stay in the caches: what goes to and from memory is
// each input once and each output once. While one chunk is reduced the next is copied in.
//
// Every element is reduced in the order of the set's indices, so all results are bit-equal, on all
// ranks and whatever the sizes.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "collectives/backends/backend.h"
#include "collectives/backends/shm/board.h"
#include "collectives/backends/shm/piece_view.h"
#include "collectives/kernels/kernels.h"
#include "collectives/memory/futex.h"
#include "collectives/memory/segment.h"

namespace hora::collectives {
namespace {

constexpr std::uint64_t kDepth = 4;              // chunks in each ring
constexpr std::int64_t kSmallBytes = 16 * 1024;  // done in one step: everybody reads everything
constexpr std::int64_t kBlockBytes = 16 * 1024;  // what a core works on at a time; stays in L1
constexpr std::int64_t kAlign = 64;

// Counters of the board; each only grows. The first three count turns of the rings, over all
// operations; each says "what I had to do with the turns below this number is done":
//   kGiven    my chunks are there
//   kReduced  my part is there, and I no longer read the others' chunks for it
//   kTaken    I have taken the others' parts (or chunks, where nothing is reduced)
// The fourth counts the operations that are done in one step.
enum Counter { kGiven = 0, kReduced = 1, kTaken = 2, kSmall = 3 };

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Where everything is in the segment; the same on every rank.
struct Layout {
  int size = 1;
  std::int64_t chunk_bytes = 0;  // what one rank gives at a time
  std::int64_t part_bytes = 0;   // what one rank reduces of it

  std::int64_t lines() const { return round_up(size * std::int64_t{sizeof(BoardLine)}, 4096); }
  std::int64_t small() const { return round_up(2 * kSmallBytes, 4096); }
  std::int64_t per_rank() const {
    return small() + static_cast<std::int64_t>(kDepth) * (chunk_bytes + part_bytes);
  }
  std::int64_t total() const { return lines() + size * per_rank(); }

  char* rank_area(char* base, int rank) const { return base + lines() + rank * per_rank(); }
  char* small_slot(char* base, int rank, std::uint64_t turn) const {
    return rank_area(base, rank) + static_cast<std::int64_t>(turn % 2) * kSmallBytes;
  }
  char* chunk(char* base, int rank, std::uint64_t turn) const {
    return rank_area(base, rank) + small() + static_cast<std::int64_t>(turn % kDepth) * chunk_bytes;
  }
  char* part(char* base, int rank, std::uint64_t turn) const {
    return rank_area(base, rank) + small() + static_cast<std::int64_t>(kDepth) * chunk_bytes +
           static_cast<std::int64_t>(turn % kDepth) * part_bytes;
  }
};

Layout plan_layout(int size, std::int64_t budget_bytes) {
  Layout layout;
  layout.size = size;
  // The rings of all ranks together within the budget, a part at most 128 KiB and at least one
  // page.
  const std::int64_t most = 128 * 1024;
  const std::int64_t affordable =
      budget_bytes / (std::int64_t{size} * static_cast<std::int64_t>(kDepth) * (size + 1));
  layout.part_bytes = std::clamp(affordable / 4096 * 4096, std::int64_t{4096}, most);
  layout.chunk_bytes = layout.part_bytes * size;
  return layout;
}

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

class ShmBackend final : public Backend {
 public:
  static Backend* open(const GroupContext& group, ErrorText& error) {
    std::int64_t budget = 64 << 20;
    if (const char* text = group.services->setting("HORA_SHM_BYTES")) {
      budget = std::max<std::int64_t>(std::atoll(text), 1 << 20);
    }
    auto self = std::make_unique<ShmBackend>();
    self->layout_ = plan_layout(group.size, budget);
    auto segment = Segment::open({group.ranks, static_cast<std::size_t>(group.size)}, group.index,
                                 static_cast<std::size_t>(self->layout_.total()),
                                 [&](const std::string& mine) { return meet_in(group, mine); });
    if (!segment) {
      error.set("%s", segment.error().message.c_str());
      return nullptr;
    }
    self->segment_ = std::move(*segment);
    self->base_address_ = static_cast<char*>(self->segment_.data());
    self->index_ = group.index;
    self->size_ = group.size;
    self->board_.attach(reinterpret_cast<BoardLine*>(self->base_address_), group.index, group.size,
                        cores_for(group.local_size));
    self->scratch_.resize(static_cast<std::size_t>(kBlockBytes));
    return self.release();
  }

  Progress execute(const Step& step, std::uint64_t*, ErrorText& error) noexcept override {
    try {
      step_ = &step;
      width_ = static_cast<std::int64_t>(dtype_bytes(dtype()));
      view_.assign(step.pieces, step.piece_count);
      if (run()) return Progress::kDone;
      error.set("the job is ending");
    } catch (const std::exception& failure) {
      error.set("%s", failure.what());
    }
    return Progress::kFailed;
  }
  Progress poll(std::uint64_t, ErrorText&) noexcept override { return Progress::kDone; }
  void abort() noexcept override { board_.abort(); }
  void destroy() noexcept override { delete this; }

 private:
  hora_dtype dtype() const { return static_cast<hora_dtype>(step_->dtype); }
  hora_reduce_op reduce_op() const { return static_cast<hora_reduce_op>(step_->reduce_op); }
  char* chunk(int rank, std::uint64_t turn) const {
    return layout_.chunk(base_address_, rank, turn);
  }
  char* part(int rank, std::uint64_t turn) const { return layout_.part(base_address_, rank, turn); }

  bool run() {
    if (board_.aborted()) return false;
    switch (static_cast<hora_operation>(step_->operation)) {
      case HORA_ALLREDUCE:
        return view_.count() * width_ <= kSmallBytes ? allreduce_small() : allreduce_large();
      case HORA_ALLGATHER:
        return allgather();
      case HORA_BROADCAST:
        return broadcast();
      case HORA_ALLTOALL:
        return alltoall();
      case HORA_REDUCESCATTER:
        return reducescatter();
      case HORA_BARRIER:
        return barrier();
      case HORA_JOIN:
        break;
    }
    return false;
  }

  // An operation of so many turns is over for this rank. The others may still be at it: whoever
  // uses a ring's place again waits for them then (wait_for_place).
  bool finish(std::uint64_t turns) {
    base_ += turns;
    for (Counter counter : {kGiven, kReduced, kTaken}) publish(counter, base_);
    return !board_.aborted();
  }

  // Until nobody needs any more what lies where this turn's chunk (or part) will lie.
  bool wait_for_place(Counter counter, std::uint64_t turn) {
    const std::uint64_t absolute = base_ + turn;
    return absolute < kDepth || board_.wait_all(counter, absolute - kDepth + 1);
  }

  // The whole set comes to one point. Answers when all have.
  bool meet() {
    ++small_turn_;
    board_.advance(kSmall, small_turn_);
    return board_.wait_all(kSmall, small_turn_);
  }

  char* small_slot(int rank) const { return layout_.small_slot(base_address_, rank, small_turn_); }

  void publish(Counter counter, std::uint64_t value) {
    if (own_[counter] == value) return;
    own_[counter] = value;
    board_.advance(counter, value);
  }

  // --- copying and reducing -------------------------------------------------------------------

  // A stretch of an input to shared memory, prescaled.
  void copy_in(char* target, const Piece& piece, std::int64_t first, std::int64_t count) const {
    const char* source = static_cast<const char*>(piece.input) + first * width_;
    if (step_->prescale == 1.0) {
      std::memcpy(target, source, static_cast<std::size_t>(count * width_));
    } else {
      kernels().scale[dtype()](target, source, count, step_->prescale);
    }
  }

  void give(char* target, std::int64_t begin, std::int64_t end) const {
    view_.each(
        begin, end,
        [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t offset) {
          copy_in(target + offset * width_, piece, first, count);
        });
  }

  void take(const char* source, std::int64_t begin, std::int64_t end) const {
    view_.each(
        begin, end,
        [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t offset) {
          std::memcpy(static_cast<char*>(piece.output) + first * width_, source + offset * width_,
                      static_cast<std::size_t>(count * width_));
        });
  }

  // target = source(0) op source(1) op ... over all ranks; `source(rank)` is where rank's elements
  // are.
  template <typename Source>
  void reduce_block(char* target, const Source& source, std::int64_t count) const {
    const ReduceFunction function = reduce_function(dtype(), reduce_op());
    function(target, source(0), source(1), count);
    for (int rank = 2; rank < size_; ++rank) function(target, target, source(rank), count);
    apply_scale(target, count, dtype(), step_->postscale, step_->divisor);
  }

  // Reduces elements [begin, end) of the whole vector: those of the others lie in their chunks of
  // this turn at `offset_bytes`, this rank's own in its tensors. The result goes to `target` and,
  // if wanted, to the outputs.
  void reduce_part(char* target, std::uint64_t turn, std::int64_t offset_bytes, std::int64_t begin,
                   std::int64_t end, bool to_outputs) {
    const std::int64_t block = kBlockBytes / width_;
    view_.each(
        begin, end,
        [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t offset) {
          for (std::int64_t done = 0; done < count; done += block) {
            const std::int64_t now = std::min(block, count - done);
            const std::int64_t place = (offset + done) * width_;
            const char* own = static_cast<const char*>(piece.input) + (first + done) * width_;
            if (step_->prescale != 1.0) {
              kernels().scale[dtype()](scratch_.data(), own, now, step_->prescale);
              own = scratch_.data();
            }
            reduce_block(
                target + place,
                [&](int rank) {
                  return rank == index_ ? own : chunk(rank, turn) + offset_bytes + place;
                },
                now);
            if (!to_outputs) continue;
            std::memcpy(static_cast<char*>(piece.output) + (first + done) * width_, target + place,
                        static_cast<std::size_t>(now * width_));
          }
        });
  }

  // --- operations -----------------------------------------------------------------------------

  bool barrier() { return meet(); }

  // Everybody gives all and reduces all: one hand-over, and then each works for itself. A slot is
  // used again at the meeting after the next; by then everybody has finished reading it, since
  // everybody has come to the meeting in between.
  bool allreduce_small() {
    const std::int64_t count = view_.count();
    give(small_slot_of_next_meeting(), 0, count);
    if (!meet()) return false;
    view_.each(
        0, count,
        [&](const Piece& piece, std::int64_t first, std::int64_t length, std::int64_t offset) {
          reduce_block(
              static_cast<char*>(piece.output) + first * width_,
              [&](int rank) { return small_slot(rank) + offset * width_; }, length);
        });
    return true;
  }

  char* small_slot_of_next_meeting() const {
    return layout_.small_slot(base_address_, index_, small_turn_ + 1);
  }

  // Chunk by chunk: everybody gives what the others reduce, reduces its own part, takes the others'
  // parts.
  bool allreduce_large() {
    const std::int64_t total = view_.count();
    const std::int64_t per_part = layout_.part_bytes / width_;
    const std::int64_t per_turn = per_part * size_;
    const auto turns = static_cast<std::uint64_t>((total + per_turn - 1) / per_turn);
    // The last turn may be short: its parts are equal too, so that everybody has something to do.
    const auto bounds = [&](std::uint64_t turn, int rank) {
      const std::int64_t begin = static_cast<std::int64_t>(turn) * per_turn;
      const std::int64_t left = std::min(per_turn, total - begin);
      const std::int64_t unit = kAlign / std::min<std::int64_t>(width_, kAlign);
      const std::int64_t share = round_up((left + size_ - 1) / size_, unit);
      return std::pair(begin + std::min(left, share * rank),
                       begin + std::min(left, share * (rank + 1)));
    };
    const auto give_turn = [&](std::uint64_t turn) {
      // The chunk's place is free when everybody has reduced what was there.
      if (!wait_for_place(kReduced, turn)) return false;
      const std::int64_t begin = static_cast<std::int64_t>(turn) * per_turn;
      for (int step = 1; step < size_; ++step) {
        const int rank = (index_ + step) % size_;
        const auto [first, last] = bounds(turn, rank);
        give(chunk(index_, base_ + turn) + (first - begin) * width_, first, last);
      }
      publish(kGiven, base_ + turn + 1);
      return true;
    };
    const auto take_turn = [&](std::uint64_t turn) {
      for (int step = 1; step < size_; ++step) {
        const int rank = (index_ + step) % size_;
        if (!board_.wait_one(kReduced, rank, base_ + turn + 1)) return false;
        const auto [first, last] = bounds(turn, rank);
        take(part(rank, base_ + turn), first, last);
      }
      publish(kTaken, base_ + turn + 1);
      return true;
    };
    if (!give_turn(0)) return false;
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      if (turn + 1 < turns && !give_turn(turn + 1)) return false;
      if (!board_.wait_all(kGiven, base_ + turn + 1)) return false;
      if (!wait_for_place(kTaken, turn)) return false;
      const auto [first, last] = bounds(turn, index_);
      reduce_part(part(index_, base_ + turn), base_ + turn,
                  (first - static_cast<std::int64_t>(turn) * per_turn) * width_, first, last, true);
      publish(kReduced, base_ + turn + 1);
      // One turn behind, so that the others have had time to reduce theirs.
      if (turn > 0 && !take_turn(turn - 1)) return false;
    }
    return take_turn(turns - 1) && finish(turns);
  }

  // The root gives, chunk by chunk; the others take.
  bool broadcast() {
    const std::int64_t total = view_.count();
    const std::int64_t per_turn = layout_.chunk_bytes / width_;
    const auto turns = static_cast<std::uint64_t>((total + per_turn - 1) / per_turn);
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      const std::int64_t begin = static_cast<std::int64_t>(turn) * per_turn;
      const std::int64_t end = std::min(total, begin + per_turn);
      char* const place = chunk(step_->root, base_ + turn);
      if (index_ == step_->root) {
        if (!wait_for_place(kTaken, turn)) return false;
        give(place, begin, end);
        publish(kGiven, base_ + turn + 1);
      } else {
        if (!board_.wait_one(kGiven, step_->root, base_ + turn + 1)) return false;
        take(place, begin, end);
      }
      publish(kTaken, base_ + turn + 1);
    }
    if (index_ == step_->root && step_->pieces[0].input != step_->pieces[0].output && total > 0) {
      std::memcpy(step_->pieces[0].output, step_->pieces[0].input,
                  static_cast<std::size_t>(total * width_));
    }
    return finish(turns);
  }

  // Bytes that each rank gives to each other one in turns of at most `room` bytes.
  // give(rank, turn, place) and take(rank, turn, place) copy one such portion.
  template <typename Give, typename Take>
  bool exchange_in_turns(std::uint64_t turns, const Give& give_portion, const Take& take_portion) {
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      if (!wait_for_place(kTaken, turn)) return false;
      give_portion(turn);
      publish(kGiven, base_ + turn + 1);
      for (int step = 0; step < size_; ++step) {
        const int rank = (index_ + step) % size_;
        if (!board_.wait_one(kGiven, rank, base_ + turn + 1)) return false;
        take_portion(rank, turn);
      }
      publish(kTaken, base_ + turn + 1);
    }
    return finish(turns);
  }

  static std::uint64_t turns_for(std::int64_t bytes, std::int64_t room) {
    return static_cast<std::uint64_t>((bytes + room - 1) / room);
  }

  // Part `turn` of `bytes` bytes: where it begins and how long it is (0 when there is none).
  static std::pair<std::int64_t, std::int64_t> portion(std::int64_t bytes, std::int64_t room,
                                                       std::uint64_t turn) {
    const std::int64_t begin = std::min(bytes, static_cast<std::int64_t>(turn) * room);
    return {begin, std::min(room, bytes - begin)};
  }

  static void copy(char* target, const char* source, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(bytes));
  }

  bool allgather() {
    const Piece& piece = step_->pieces[0];
    std::vector<std::int64_t> offsets(1, 0);
    std::int64_t longest = 0;
    for (int rank = 0; rank < size_; ++rank) {
      const std::int64_t bytes = step_->receive_counts[rank] * width_;
      longest = std::max(longest, bytes);
      offsets.push_back(offsets.back() + bytes);
    }
    const std::int64_t room = layout_.chunk_bytes;
    const auto bytes_of = [&](int rank) { return step_->receive_counts[rank] * width_; };
    const auto give_portion = [&](std::uint64_t turn) {
      const auto [begin, length] = portion(bytes_of(index_), room, turn);
      copy(chunk(index_, base_ + turn), static_cast<const char*>(piece.input) + begin, length);
    };
    const auto take_portion = [&](int rank, std::uint64_t turn) {
      const auto [begin, length] = portion(bytes_of(rank), room, turn);
      copy(static_cast<char*>(piece.output) + offsets[static_cast<std::size_t>(rank)] + begin,
           rank == index_ ? static_cast<const char*>(piece.input) + begin
                          : chunk(rank, base_ + turn),
           length);
    };
    return exchange_in_turns(turns_for(longest, room), give_portion, take_portion);
  }

  bool alltoall() {
    const Piece& piece = step_->pieces[0];
    std::vector<std::int64_t> sources(1, 0);
    std::vector<std::int64_t> targets(1, 0);
    std::int64_t longest = 0;
    for (int rank = 0; rank < size_; ++rank) {
      sources.push_back(sources.back() + step_->send_counts[rank] * width_);
      targets.push_back(targets.back() + step_->receive_counts[rank] * width_);
      longest = std::max(longest, step_->send_counts[rank] * width_);
    }
    // The number of turns is everybody's largest; only its own row is known to each.
    std::uint64_t turns = 0;
    if (!agree_on_largest(turns_for(longest, layout_.part_bytes), &turns)) return false;
    const std::int64_t room = layout_.part_bytes;
    const auto give_portion = [&](std::uint64_t turn) {
      for (int rank = 0; rank < size_; ++rank) {
        if (rank == index_) continue;
        const auto [begin, length] = portion(step_->send_counts[rank] * width_, room, turn);
        copy(
            chunk(index_, base_ + turn) + rank * room,
            static_cast<const char*>(piece.input) + sources[static_cast<std::size_t>(rank)] + begin,
            length);
      }
    };
    const auto take_portion = [&](int rank, std::uint64_t turn) {
      const auto [begin, length] = portion(step_->receive_counts[rank] * width_, room, turn);
      const char* source = rank == index_ ? static_cast<const char*>(piece.input) +
                                                sources[static_cast<std::size_t>(rank)] + begin
                                          : chunk(rank, base_ + turn) + index_ * room;
      copy(static_cast<char*>(piece.output) + targets[static_cast<std::size_t>(rank)] + begin,
           source, length);
    };
    return exchange_in_turns(turns, give_portion, take_portion);
  }

  bool agree_on_largest(std::uint64_t mine, std::uint64_t* largest) {
    std::memcpy(small_slot_of_next_meeting(), &mine, sizeof mine);
    if (!meet()) return false;
    for (int rank = 0; rank < size_; ++rank) {
      std::uint64_t theirs = 0;
      std::memcpy(&theirs, small_slot(rank), sizeof theirs);
      *largest = std::max(*largest, theirs);
    }
    return true;
  }

  // Each turn brings a portion of every rank's part: everybody gives what the others reduce.
  bool reducescatter() {
    const Piece& piece = step_->pieces[0];
    std::vector<std::int64_t> starts(1, 0);  // of each rank's part, in elements
    std::int64_t longest = 0;
    for (int rank = 0; rank < size_; ++rank) {
      starts.push_back(starts.back() + step_->receive_counts[rank]);
      longest = std::max(longest, step_->receive_counts[rank]);
    }
    const std::int64_t room = layout_.part_bytes / width_;
    const std::uint64_t turns = turns_for(longest, room);
    for (std::uint64_t turn = 0; turn < turns; ++turn) {
      if (!wait_for_place(kReduced, turn)) return false;
      for (int step = 1; step < size_; ++step) {
        const int rank = (index_ + step) % size_;
        const auto [begin, length] = portion(step_->receive_counts[rank], room, turn);
        const std::int64_t first = starts[static_cast<std::size_t>(rank)] + begin;
        give(chunk(index_, base_ + turn) + rank * layout_.part_bytes, first, first + length);
      }
      publish(kGiven, base_ + turn + 1);
      if (!board_.wait_all(kGiven, base_ + turn + 1)) return false;
      const auto [begin, length] = portion(step_->receive_counts[index_], room, turn);
      const std::int64_t first = starts[static_cast<std::size_t>(index_)] + begin;
      reduce_part(static_cast<char*>(piece.output) + begin * width_, base_ + turn,
                  index_ * layout_.part_bytes, first, first + length, false);
      publish(kReduced, base_ + turn + 1);
    }
    return finish(turns);
  }

  Segment segment_;
  Layout layout_;
  char* base_address_ = nullptr;
  int index_ = 0;
  int size_ = 1;
  Board board_;
  std::uint64_t own_[3] = {};
  std::uint64_t base_ = 0;        // turns of all operations so far
  std::uint64_t small_turn_ = 0;  // meetings so far
  std::vector<char> scratch_;

  // Of the operation that is running.
  const Step* step_ = nullptr;
  std::int64_t width_ = 1;
  PieceView view_;
};

const char* version() noexcept { return ""; }
bool probe(const ProbeContext&, ErrorText&) noexcept { return true; }

Backend* create(const GroupContext& group, ErrorText& error) noexcept {
  try {
    return ShmBackend::open(group, error);
  } catch (const std::exception& failure) {
    error.set("%s", failure.what());
    return nullptr;
  }
}

constexpr Capability row(hora_operation operation) {
  Capability capability;
  capability.operation = operation;
  capability.across_hosts = 0;
  capability.score = 200;
  return capability;
}

constexpr Capability kRows[] = {row(HORA_ALLREDUCE), row(HORA_ALLGATHER),     row(HORA_BROADCAST),
                                row(HORA_ALLTOALL),  row(HORA_REDUCESCATTER), row(HORA_BARRIER)};

constexpr BackendDescriptor kDescriptor = {
    kBorderVersion, sizeof(BackendDescriptor),      "shm",  "Shared memory", version, probe,
    kRows,          sizeof kRows / sizeof kRows[0], create, nullptr};

}  // namespace

const BackendDescriptor* shm_backend_descriptor() { return &kDescriptor; }

}  // namespace hora::collectives
