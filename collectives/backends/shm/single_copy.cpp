// SPDX-License-Identifier: Apache-2.0
// An allreduce has three phases with a meeting after each: every rank shows where its tensors are;
// every rank reads its share of all inputs, reduces it, and writes the result to its own outputs;
// every rank reads the other shares from their owners' outputs.
#include "collectives/backends/shm/single_copy.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <string>

#include "collectives/backends/shm/read_access.h"
#include "collectives/memory/futex.h"
#include "collectives/memory/share.h"

namespace hora::collectives::shm {

namespace {

constexpr int kMostPieces = 32;
// Above this size the rings are as fast, since they stay in the caches while the tensors do not.
constexpr std::int64_t kMostBytes = 1 << 20;

// How much of each rank is read and reduced at a time: all ranks' blocks together fit into a core's
// own cache.
std::int64_t block_bytes(int size) {
  return std::max(std::int64_t{128 * 1024} / size / 64 * 64, std::int64_t{1024});
}

// Reads all of `remote` into `local`; both are equally long. process_vm_readv() may stop early, at
// a page boundary or its limit, so this continues where it stopped. False: errno says why.
bool read_all(pid_t pid, std::vector<iovec>& local, std::vector<iovec>& remote) {
  std::size_t bytes = 0;
  for (const iovec& each : remote) bytes += each.iov_len;
  while (bytes > 0) {
    const ssize_t count =
        process_vm_readv(pid, local.data(), local.size(), remote.data(), remote.size(), 0);
    if (count <= 0) return false;
    bytes -= static_cast<std::size_t>(count);
    for (auto* list : {&local, &remote}) {
      auto left = static_cast<std::size_t>(count);
      auto at = list->begin();
      for (; at != list->end() && at->iov_len <= left; ++at) left -= at->iov_len;
      list->erase(list->begin(), at);
      if (list->empty()) break;
      list->front().iov_base = static_cast<char*>(list->front().iov_base) + left;
      list->front().iov_len -= left;
    }
  }
  return true;
}

// Tells the others where to find a value that they know, so that they can test whether they can
// read it.
struct Card {
  std::int32_t pid;
  std::int32_t index;
  const void* address;
  Standing standing;
};

// The value to find there: different from that of any other process that a rank might see under
// this process id.
std::string secret_of(const GroupContext& group, int rank) {
  return std::string(group.job) + "/" + std::to_string(rank);
}

void tell(const GroupContext& group, const std::string& note) {
  group.services->note(note.c_str());
}

std::string objection_of_setting(const GroupContext& group) {
  const char* const wanted = group.services->setting("HORA_SHM_SINGLE_COPY");
  if (wanted != nullptr && *wanted != '\0') {
    return std::strcmp(wanted, "0") != 0 ? "" : "HORA_SHM_SINGLE_COPY is 0";
  }
  // Where ranks share cores, waiting for each other costs more than copying, and rings wait less.
  if (cores_for(group.local_size)) return {};
  return "the host has fewer cores than ranks, and the rings wait less (HORA_SHM_SINGLE_COPY=1: "
         "all "
         "the same)";
}

// Tests one rank; returns why its memory cannot be read, or nothing.
std::string objection_to_reading(const Card& card, const std::string& expected, int rank) {
  std::string found(expected.size(), '\0');
  std::vector<iovec> local{{found.data(), found.size()}};
  std::vector<iovec> remote{{const_cast<void*>(card.address), found.size()}};
  errno = 0;
  if (read_all(card.pid, local, remote) && found == expected) return {};
  const RefusedRead refused{errno, error_reading_self(), ptrace_scope(), own_standing(),
                            card.standing};
  return "it may not read the memory of rank " + std::to_string(rank) + ": " + explain(refused);
}

}  // namespace

// What a rank shows the others. A meeting publishes the plain members.
struct alignas(64) SingleCopy::Desk {
  std::int32_t pid;
  std::int32_t readable;  // 1: others can read its tensors of this operation
  // Not 0: the rank has failed and its caller has the tensors back. Whatever others read of them
  // from then on may be anything.
  std::atomic<std::uint32_t> given_up;
  const char* inputs[kMostPieces];
  const char* outputs[kMostPieces];
};

std::int64_t SingleCopy::desk_bytes() { return sizeof(Desk); }

SingleCopy::Desk& SingleCopy::desk(int rank) const {
  return *reinterpret_cast<Desk*>(rings_.desk(rank));
}

bool SingleCopy::try_out(const GroupContext& group, ErrorText& error) {
  const std::string secret = secret_of(group, group.index);
  Card card{static_cast<std::int32_t>(getpid()), group.index, secret.data(), own_standing()};
  const void* const* received = nullptr;
  const std::size_t* lengths = nullptr;
  if (!group.services->exchange(&card, sizeof card, false, &received, &lengths, error)) {
    return false;
  }
  std::string objection = objection_of_setting(group);
  for (int rank = 0; objection.empty() && rank < group.size; ++rank) {
    Card its;
    if (lengths[rank] != sizeof its) {
      objection = "a rank told something else than where its memory is";
    } else {
      std::memcpy(&its, received[rank], sizeof its);
      objection = objection_to_reading(its, secret_of(group, rank), group.ranks[rank]);
    }
  }
  // A second exchange: single copy needs all ranks to agree on the way.
  if (!group.services->exchange(objection.data(), objection.size(), false, &received, &lengths,
                                error)) {
    return false;
  }
  possible_ = true;
  for (int rank = 0; rank < group.size && possible_; ++rank) {
    if (lengths[rank] == 0) continue;
    possible_ = false;
    tell(group, "no single copy: rank " + std::to_string(group.ranks[rank]) + ": " +
                    std::string(static_cast<const char*>(received[rank]), lengths[rank]));
  }
  if (possible_) {
    scratch_.resize(static_cast<std::size_t>(block_bytes(group.size) * group.size));
    tell(group, "single copy: allreduce reads tensors of up to " +
                    std::to_string(kMostBytes >> 10) + " KiB where they lie (process_vm_readv)");
  }
  // Written here and published by the first meeting.
  desk(rings_.index()).pid = card.pid;
  return true;
}

void SingleCopy::host_note(ErrorText& note) noexcept {
  try {
    const std::string obstacle = obstacle_here();
    note.set("%s", obstacle.empty() ? "single copy: processes may read each other's memory"
                                    : ("no single copy: " + obstacle).c_str());
  } catch (const std::exception&) {  // no memory left for the note
  }
}

bool SingleCopy::suits(const Work& work) const {
  const std::int64_t bytes = work.count() * work.width();
  return possible_ && bytes <= kMostBytes && work.step().piece_count <= kMostPieces;
}

// Other processes cannot read memory that a driver has mapped; then this process cannot read its
// own in this way either. So it tests the first and last byte of each tensor on itself.
bool SingleCopy::can_be_read(const Work& work) const {
  const Step& step = work.step();
  std::vector<char> found(static_cast<std::size_t>(4 * step.piece_count));
  std::vector<iovec> local;
  std::vector<iovec> remote;
  for (int i = 0; i < step.piece_count; ++i) {
    const Piece& piece = step.pieces[i];
    if (piece.count == 0) continue;
    for (const void* tensor : {piece.input, static_cast<const void*>(piece.output)}) {
      char* const first = const_cast<char*>(static_cast<const char*>(tensor));
      for (char* byte : {first, first + piece.count * work.width() - 1}) {
        local.push_back({&found[local.size()], 1});
        remote.push_back({byte, 1});
      }
    }
  }
  return read_all(getpid(), local, remote);
}

SingleCopy::Outcome SingleCopy::allreduce(const Work& work, ErrorText& error) {
  const Step& step = work.step();
  Desk& own = desk(rings_.index());
  for (int i = 0; i < step.piece_count; ++i) {
    own.inputs[i] = static_cast<const char*>(step.pieces[i].input);
    own.outputs[i] = static_cast<const char*>(step.pieces[i].output);
  }
  own.readable = can_be_read(work) ? 1 : 0;
  error.set("the job is ending");
  if (!rings_.barrier()) return Outcome::kFailed;
  for (int rank = 0; rank < rings_.size(); ++rank) {
    // All ranks see the same values here and change nothing before all have come to the next
    // meeting.
    if (desk(rank).readable == 0) return Outcome::kElsewhere;
  }
  if (read_and_reduce(work, error)) return Outcome::kDone;
  // The flag must be visible before the caller touches its tensors again; the fence pairs with that
  // in nobody_has_given_up().
  own.given_up.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return Outcome::kFailed;
}

bool SingleCopy::read_and_reduce(const Work& work, ErrorText& error) {
  if (!reduce_own(work, error) || !rings_.barrier()) return false;
  for (int step_to = 1; step_to < rings_.size(); ++step_to) {
    const int rank = rings_.turn_to(step_to);
    const Share its = share_of(rank, rings_.size(), 0, work.count(), work.width());
    if (!read(rank, true, work, its.begin, its.end, nullptr, error)) return false;
  }
  // A rank that has finished may be aborted while it waits here for one that still reads. After the
  // meeting each caller may do with its tensors what it likes.
  return nobody_has_given_up() && rings_.barrier();
}

bool SingleCopy::nobody_has_given_up() const {
  // Orders the reads of other ranks' memory before the look at their flags: if no flag is set, the
  // owners had not taken their tensors back while this rank read.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int rank = 0; rank < rings_.size(); ++rank) {
    if (desk(rank).given_up.load(std::memory_order_relaxed) != 0) return false;
  }
  return true;
}

// Reads elements [begin, end) of another rank's inputs into `target`, or of its outputs into this
// rank's outputs.
bool SingleCopy::read(int rank, bool outputs, const Work& work, std::int64_t begin,
                      std::int64_t end, char* target, ErrorText& error) {
  const Desk& its = desk(rank);
  const std::int64_t width = work.width();
  std::vector<iovec> local;
  std::vector<iovec> remote;
  work.view().each(
      begin, end,
      [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t offset) {
        const auto at = &piece - work.step().pieces;
        const auto bytes = static_cast<std::size_t>(count * width);
        char* const to =
            outputs ? static_cast<char*>(piece.output) + first * width : target + offset * width;
        const char* const from = (outputs ? its.outputs[at] : its.inputs[at]) + first * width;
        local.push_back({to, bytes});
        remote.push_back({const_cast<char*>(from), bytes});
      });
  if (read_all(its.pid, local, remote)) return true;
  return error.set("reading from the process %d of rank %d of the set: %s", its.pid, rank,
                   std::strerror(errno));
}

bool SingleCopy::reduce_own(const Work& work, ErrorText& error) {
  const int size = rings_.size();
  const int index = rings_.index();
  const std::int64_t width = work.width();
  const double prescale = work.step().prescale;
  const Share own = share_of(index, size, 0, work.count(), width);
  const std::int64_t block = block_bytes(size) / width;
  const auto scratch_of = [&](int rank) { return scratch_.data() + rank * block * width; };
  for (std::int64_t begin = own.begin; begin < own.end; begin += block) {
    const std::int64_t end = std::min(own.end, begin + block);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == index) continue;
      if (!read(rank, false, work, begin, end, scratch_of(rank), error)) return false;
      if (prescale != 1.0) {
        kernels().scale[work.dtype()](scratch_of(rank), scratch_of(rank), end - begin, prescale);
      }
    }
    work.view().each(
        begin, end,
        [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t offset) {
          const char* mine = static_cast<const char*>(piece.input) + first * width;
          char* const out = static_cast<char*>(piece.output) + first * width;
          char* const aside = scratch_of(index) + offset * width;
          if (prescale != 1.0) {
            kernels().scale[work.dtype()](aside, mine, count, prescale);
            mine = aside;
          } else if (mine == out && index > 1) {
            // Reducing in place would overwrite this rank's input: the first two ranks are combined
            // before its turn comes.
            std::memcpy(aside, mine, static_cast<std::size_t>(count * width));
            mine = aside;
          }
          const auto source = [&](int rank) -> const char* {
            return rank == index ? mine : scratch_of(rank) + offset * width;
          };
          work.reduce(out, source, size, count);
        });
  }
  return true;
}

}  // namespace hora::collectives::shm
