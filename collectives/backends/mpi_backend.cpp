// Collectives of the site's MPI library, on host memory.
//
// Compiled into a module of its own, linked to the MPI that the build machine has; a host needs the
// same one (libmpi.so.40 for Open MPI, libmpi.so.12 for MPICH). Works in processes that an MPI
// launcher has started; there it also lets them meet without a rendezvous (mpi/meeting.h).
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <vector>

#include "collectives/backends/activity.h"
#include "collectives/backends/backend.h"
#include "collectives/backends/mpi/collectives.h"
#include "collectives/backends/mpi/datatypes.h"
#include "collectives/backends/mpi/meeting.h"
#include "collectives/backends/mpi/session.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {
namespace {

// MPI may take for granted that numbers lie where the processor likes them.
bool is_aligned(const void* data, std::int64_t width) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(width) == 0;
}

void copy(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<std::size_t>(bytes));
}

class MpiBackend final : public Backend {
 public:
  MpiBackend(MPI_Comm communicator, int index, int size) : mpi_(communicator, index, size) {}

  Progress execute(const Step& step, std::uint64_t*, ErrorText& error) noexcept override {
    try {
      return run(step, error) ? Progress::kDone : Progress::kFailed;
    } catch (const std::exception& failure) {  // out of memory
      error.set("%s", failure.what());
      return Progress::kFailed;
    }
  }
  Progress poll(std::uint64_t, ErrorText&) noexcept override { return Progress::kDone; }
  void abort() noexcept override { mpi_.abort(); }
  void destroy() noexcept override { delete this; }

 private:
  struct Kind {  // of a step's elements
    hora_dtype dtype;
    std::int64_t width;
    MPI_Datatype type;
    MPI_Op op;
  };

  bool run(const Step& step, ErrorText& error) {
    if (step.operation == HORA_BARRIER) return mpi_.barrier(error);
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    const Kind kind = {dtype, static_cast<std::int64_t>(dtype_bytes(dtype)),
                       mpi::datatype_of(dtype),
                       mpi::operator_of(dtype, static_cast<hora_reduce_op>(step.reduce_op))};
    switch (static_cast<hora_operation>(step.operation)) {
      case HORA_ALLREDUCE:
        return allreduce(step, kind, error);
      case HORA_ALLGATHER:
        return allgather(step, kind, error);
      case HORA_BROADCAST:
        return broadcast(step, kind, error);
      case HORA_ALLTOALL:
        return alltoall(step, kind, error);
      case HORA_REDUCESCATTER:
        return reducescatter(step, kind, error);
      default:
        return error.set("this backend has no such operation");
    }
  }

  // In `data`, or from `input` to it when nothing has to happen to the input before.
  bool reduce(const void* input, void* data, std::int64_t count, const Step& step, const Kind& kind,
              ErrorText& error) {
    if (kind.op == MPI_OP_NULL) return error.set("MPI has no such reduction");
    if (input != data && step.prescale != 1.0) {
      copy(data, input, count * kind.width);
      input = data;
    }
    apply_scale(data, input == data ? count : 0, kind.dtype, step.prescale, 1);
    {
      const Activity activity(step, "MPI_ALLREDUCE");
      if (!mpi_.allreduce(input, data, count, kind.type, kind.op, error)) return false;
    }
    apply_scale(data, count, kind.dtype, step.postscale, step.divisor);
    return true;
  }

  bool allreduce(const Step& step, const Kind& kind, ErrorText& error) {
    if (step.piece_count == 1) {
      const Piece& piece = step.pieces[0];
      if (is_aligned(piece.input, kind.width) && is_aligned(piece.output, kind.width)) {
        return reduce(piece.input, piece.output, piece.count, step, kind, error);
      }
    }
    std::int64_t total = 0;
    for (int i = 0; i < step.piece_count; ++i) total += step.pieces[i].count;
    char* const packed = buffer(total * kind.width);
    pack(step, kind, packed);
    if (!reduce(packed, packed, total, step, kind, error)) return false;
    unpack(step, kind, packed);
    return true;
  }

  static void pack(const Step& step, const Kind& kind, char* place) {
    const Activity activity(step, "MEMCPY_IN_FUSION_BUFFER");
    for (int i = 0; i < step.piece_count; ++i) {
      copy(place, step.pieces[i].input, step.pieces[i].count * kind.width);
      place += step.pieces[i].count * kind.width;
    }
  }

  static void unpack(const Step& step, const Kind& kind, const char* place) {
    const Activity activity(step, "MEMCPY_OUT_FUSION_BUFFER");
    for (int i = 0; i < step.piece_count; ++i) {
      copy(step.pieces[i].output, place, step.pieces[i].count * kind.width);
      place += step.pieces[i].count * kind.width;
    }
  }

  bool allgather(const Step& step, const Kind& kind, ErrorText& error) {
    const Activity activity(step, "MPI_ALLGATHER");
    for (int i = 0; i < step.piece_count; ++i) {
      const Piece& piece = step.pieces[i];
      const std::int64_t* counts = step.receive_counts + i * mpi_.size();
      if (std::accumulate(counts, counts + mpi_.size(), INT64_C(0)) == 0) continue;
      const std::int64_t before = std::accumulate(counts, counts + mpi_.index(), INT64_C(0));
      const bool in_place =
          piece.input == static_cast<const char*>(piece.output) + before * kind.width;
      if (!mpi_.allgather(in_place ? nullptr : source(piece.input), piece.output, counts, kind.type,
                          error)) {
        return false;
      }
    }
    return true;
  }

  bool broadcast(const Step& step, const Kind& kind, ErrorText& error) {
    const Activity activity(step, "MPI_BCAST");
    for (int i = 0; i < step.piece_count; ++i) {
      const Piece& piece = step.pieces[i];
      if (mpi_.index() == step.root) copy(piece.output, piece.input, piece.count * kind.width);
      if (!mpi_.broadcast(piece.output, piece.count, kind.type, step.root, error)) return false;
    }
    return true;
  }

  bool alltoall(const Step& step, const Kind& kind, ErrorText& error) {
    const Activity activity(step, "MPI_ALLTOALL");
    const Piece& piece = step.pieces[0];
    return mpi_.alltoall(piece.input, step.send_counts, piece.output, step.receive_counts,
                         kind.type, error);
  }

  bool reducescatter(const Step& step, const Kind& kind, ErrorText& error) {
    if (kind.op == MPI_OP_NULL) return error.set("MPI has no such reduction");
    const Piece& piece = step.pieces[0];
    if (piece.count == 0) return true;
    const std::int64_t mine = step.receive_counts[mpi_.index()];
    const void* input = piece.input;
    if (step.prescale != 1.0 || !is_aligned(input, kind.width)) {
      char* const all = buffer(piece.count * kind.width);
      copy(all, input, piece.count * kind.width);
      apply_scale(all, piece.count, kind.dtype, step.prescale, 1);
      input = all;
    }
    const Activity activity(step, "MPI_REDUCESCATTER");
    // The runtime allocates the output: it is aligned.
    if (!mpi_.reduce_scatter(input, piece.output, step.receive_counts, kind.type, kind.op, error)) {
      return false;
    }
    apply_scale(piece.output, mine, kind.dtype, step.postscale, step.divisor);
    return true;
  }

  // A rank that gives nothing may have a null pointer, which would mean something else.
  const void* source(const void* input) { return input == nullptr ? buffer(1) : input; }

  char* buffer(std::int64_t bytes) {
    if (static_cast<std::int64_t>(buffer_.size()) < bytes) {
      buffer_.resize(static_cast<std::size_t>(bytes));
    }
    return buffer_.data();
  }

  mpi::Collectives mpi_;
  std::vector<char> buffer_;
};

const char* version() noexcept { return mpi::version(); }

bool probe(const ProbeContext& context, ErrorText& why_not) noexcept {
  if (!mpi::is_launched(why_not)) return false;
  const int launched = mpi::launched_size();
  if (launched > 0 && launched != context.world_size) {
    return why_not.set("the MPI launcher started %d processes, this job has %d", launched,
                       context.world_size);
  }
  return true;
}

// This rank's number in MPI's world, for every rank of the set by its index.
bool exchange_ranks(const GroupContext& group, std::vector<int>& ranks, ErrorText& error) {
  int size = 0;
  int mine = 0;
  if (!mpi::check(MPI_Comm_size(mpi::world(), &size), "MPI_Comm_size", error) ||
      !mpi::check(MPI_Comm_rank(mpi::world(), &mine), "MPI_Comm_rank", error)) {
    return false;
  }
  if (size != group.world_size) {
    return error.set("%s sees %d processes, this job has %d", mpi::library_name(), size,
                     group.world_size);
  }
  const void* const* theirs = nullptr;
  const std::size_t* lengths = nullptr;
  if (!group.services->exchange(&mine, sizeof mine, false, &theirs, &lengths, error)) return false;
  ranks.resize(static_cast<std::size_t>(group.size));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (lengths[i] != sizeof mine) return error.set("a rank told no place in MPI's world");
    std::memcpy(&ranks[i], theirs[i], sizeof mine);
  }
  return true;
}

MPI_Comm make_communicator(const std::vector<int>& ranks, int set, ErrorText& error) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  const bool good =
      mpi::check(MPI_Comm_group(mpi::world(), &all), "MPI_Comm_group", error) &&
      mpi::check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
                 "MPI_Group_incl", error) &&
      mpi::check(MPI_Comm_create_group(mpi::world(), members, set % 32'000, &communicator),
                 "MPI_Comm_create_group", error);
  if (members != MPI_GROUP_NULL) MPI_Group_free(&members);
  if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
  return good ? communicator : MPI_COMM_NULL;
}

Backend* create(const GroupContext& group, ErrorText& error) noexcept {
  try {
    std::vector<int> ranks;
    if (!mpi::start(error) || !mpi::make_datatypes(error) || !exchange_ranks(group, ranks, error)) {
      return nullptr;
    }
    mpi::set_ranks_on_host(group.local_size);
    const MPI_Comm communicator = make_communicator(ranks, group.set, error);
    if (communicator == MPI_COMM_NULL) return nullptr;
    return new MpiBackend(communicator, group.index, group.size);
  } catch (const std::exception& failure) {
    error.set("%s", failure.what());
    return nullptr;
  }
}

// Above Gloo, below shared memory.
constexpr Capability row(hora_operation operation) {
  Capability capability;
  capability.operation = operation;
  capability.score = 150;
  return capability;
}

constexpr Capability kRows[] = {row(HORA_ALLREDUCE), row(HORA_ALLGATHER),     row(HORA_BROADCAST),
                                row(HORA_ALLTOALL),  row(HORA_REDUCESCATTER), row(HORA_BARRIER)};

constexpr BackendDescriptor kDescriptor = {
    kBorderVersion, sizeof(BackendDescriptor),      "mpi",  "MPI",  version, probe,
    kRows,          sizeof kRows / sizeof kRows[0], create, nullptr};

}  // namespace
}  // namespace hora::collectives

extern "C" __attribute__((visibility("default"))) const hora::collectives::BackendDescriptor*
hora_backend_descriptor() {
  return &hora::collectives::kDescriptor;
}

extern "C" __attribute__((visibility("default"))) const hora::collectives::MeetingPoint*
hora_meeting_point() {
  return &hora::collectives::mpi::meeting_point();
}
