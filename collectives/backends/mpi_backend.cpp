// SPDX-License-Identifier: Apache-2.0
// Collectives of the site's MPI library, on host memory.
//
// Compiled into a module of its own, with the headers of the build machine's MPI; a host needs the
// same kind (libmpi.so.40 for Open MPI, libmpi.so.12 for MPICH). It works in processes that an MPI
// launcher has started; there it also lets the processes find each other without a rendezvous
// (mpi/mpi_bootstrap.h).
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/fusion_buffer.h"
#include "collectives/backends/mpi/collectives.h"
#include "collectives/backends/mpi/mpi_bootstrap.h"
#include "collectives/backends/mpi/session.h"
#include "collectives/backends/registry.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {
namespace {

// MPI may rely on the natural alignment of numbers; a framework's tensor may begin anywhere.
bool is_aligned(const void* data, std::int64_t width) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(width) == 0;
}

class MpiBackend final : public BlockingBackend<MpiBackend> {
 public:
  MpiBackend(MPI_Comm communicator, int index, int size) : mpi_(communicator, index, size) {}

  void abort() noexcept override { mpi_.abort(); }

  bool run(const Step& step, ErrorText& error) {
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    kind_ = {dtype, static_cast<std::int64_t>(dtype_bytes(dtype)), mpi::datatype_of(dtype),
             mpi::operator_of(dtype, static_cast<hora_reduce_op>(step.reduce_op))};
    return run_operation(*this, step, error);
  }

  // A single aligned tensor is reduced where it lies; anything else goes through the buffer.
  bool allreduce(const Step& step, ErrorText& error) {
    if (step.piece_count == 1) {
      const Piece& piece = step.pieces[0];
      if (is_aligned(piece.input, kind_.width) && is_aligned(piece.output, kind_.width)) {
        return reduce(piece, step, error);
      }
    }
    const Piece packed = buffer_.pack(step, kind_.width);
    if (!reduce(packed, step, error)) return false;
    buffer_.unpack(step, kind_.width);
    return true;
  }

  bool allgather(const Step& step, ErrorText& error) {
    const Activity activity(step, "MPI_ALLGATHER");
    for (int i = 0; i < step.piece_count; ++i) {
      const Piece& piece = step.pieces[i];
      const std::int64_t* counts = step.receive_counts + i * mpi_.size();
      // All ranks see the same counts, so all of them skip an empty piece.
      if (std::accumulate(counts, counts + mpi_.size(), INT64_C(0)) == 0) continue;
      const std::int64_t before = std::accumulate(counts, counts + mpi_.index(), INT64_C(0));
      // MPI forbids that input and output overlap, except by MPI_IN_PLACE.
      const bool in_place =
          piece.input == static_cast<const char*>(piece.output) + before * kind_.width;
      if (!mpi_.allgather(in_place ? nullptr : source(piece.input), piece.output, counts,
                          kind_.type, error)) {
        return false;
      }
    }
    return true;
  }

  bool broadcast(const Step& step, ErrorText& error) {
    const Activity activity(step, "MPI_BCAST");
    for (int i = 0; i < step.piece_count; ++i) {
      const Piece& piece = step.pieces[i];
      if (mpi_.index() == step.root)
        copy_unless_same(piece.output, piece.input, piece.count * kind_.width);
      if (!mpi_.broadcast(piece.output, piece.count, kind_.type, step.root, error)) return false;
    }
    return true;
  }

  bool alltoall(const Step& step, ErrorText& error) {
    const Activity activity(step, "MPI_ALLTOALL");
    const Piece& piece = step.pieces[0];
    return mpi_.alltoall(piece.input, step.send_counts, piece.output, step.receive_counts,
                         kind_.type, error);
  }

  bool reducescatter(const Step& step, ErrorText& error) {
    if (kind_.op == mpi::site.op_null) return error.set("MPI does not support this reduction");
    const Piece& piece = step.pieces[0];
    if (piece.count == 0) return true;
    // The input must stay as it is: scale or align a copy of it.
    const std::int64_t mine = step.receive_counts[mpi_.index()];
    const void* input = piece.input;
    if (step.prescale != 1.0 || !is_aligned(input, kind_.width)) {
      char* const all = buffer_.room(piece.count * kind_.width);
      copy_unless_same(all, input, piece.count * kind_.width);
      apply_scale(all, piece.count, kind_.dtype, step.prescale, 1);
      input = all;
    }
    const Activity activity(step, "MPI_REDUCESCATTER");
    // The runtime allocates the output, so it is aligned.
    if (!mpi_.reduce_scatter(input, piece.output, step.receive_counts, kind_.type, kind_.op,
                             error)) {
      return false;
    }
    apply_scale(piece.output, mine, kind_.dtype, step.postscale, step.divisor);
    return true;
  }

  bool barrier(const Step&, ErrorText& error) { return mpi_.barrier(error); }

 private:
  struct Kind {  // what a step's elements are
    hora_dtype dtype;
    std::int64_t width;
    MPI_Datatype type;
    MPI_Op op;
  };

  // Reduces from the input to the output when the input needs no change before, otherwise in place
  // in the output.
  bool reduce(const Piece& piece, const Step& step, ErrorText& error) {
    if (kind_.op == mpi::site.op_null) return error.set("MPI does not support this reduction");
    const void* input = piece.input;
    if (input != piece.output && step.prescale != 1.0) {
      copy_unless_same(piece.output, input, piece.count * kind_.width);
      input = piece.output;
    }
    apply_scale(piece.output, input == piece.output ? piece.count : 0, kind_.dtype, step.prescale,
                1);
    {
      const Activity activity(step, "MPI_ALLREDUCE");
      if (!mpi_.allreduce(input, piece.output, piece.count, kind_.type, kind_.op, error)) {
        return false;
      }
    }
    apply_scale(piece.output, piece.count, kind_.dtype, step.postscale, step.divisor);
    return true;
  }

  // A rank that gives nothing may have a null pointer, which the callee takes for "in place".
  const void* source(const void* input) { return input == nullptr ? buffer_.room(1) : input; }

  mpi::Collectives mpi_;
  FusionBuffer buffer_;
  Kind kind_ = {};  // the running operation's
};

const char* version() noexcept { return mpi::version(); }

bool probe(const ProbeContext& context, ErrorText& why_not) noexcept {
  if (!mpi::is_launched(why_not)) return false;
  // The launcher started a world of another size, so its MPI cannot carry this job.
  const int launched = mpi::launched_size();
  if (launched > 0 && launched != context.world_size) {
    return why_not.set("the MPI launcher started %d processes, this job has %d", launched,
                       context.world_size);
  }
  return true;
}

// Collects each rank's number in MPI's world, by set index. A rank that could not initialise MPI
// does not take part, and all learn why before they wait for each other within MPI.
bool exchange_ranks(const GroupContext& group, std::vector<int>& ranks, ErrorText& error) {
  int size = 0;
  int mine = 0;
  if (!mpi::check(mpi::site.MPI_Comm_size(mpi::site.comm_world, &size), "MPI_Comm_size", error) ||
      !mpi::check(mpi::site.MPI_Comm_rank(mpi::site.comm_world, &mine), "MPI_Comm_rank", error)) {
    return false;
  }
  // A process set is a subset of MPI's world, so the two worlds must be the same.
  if (size != group.world_size) {
    return error.set("%s sees %d processes, this job has %d", mpi::library_name(), size,
                     group.world_size);
  }
  const void* const* theirs = nullptr;
  const std::size_t* lengths = nullptr;
  if (!group.services->exchange(&mine, sizeof mine, false, &theirs, &lengths, error)) return false;
  ranks.resize(static_cast<std::size_t>(group.size));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (lengths[i] != sizeof mine)
      return error.set("a rank did not report its rank in MPI's world");
    std::memcpy(&ranks[i], theirs[i], sizeof mine);
  }
  return true;
}

// MPI_Comm_create_group() is collective over the members only, so other ranks need not take part.
// Its tag, the set's id, keeps sets apart that are created at the same time; MPI guarantees tags up
// to 32767.
MPI_Comm make_communicator(const std::vector<int>& ranks, int set, ErrorText& error) {
  MPI_Group all = mpi::site.group_null;
  MPI_Group members = mpi::site.group_null;
  MPI_Comm communicator = mpi::site.comm_null;
  const bool good =
      mpi::check(mpi::site.MPI_Comm_group(mpi::world(), &all), "MPI_Comm_group", error) &&
      mpi::check(
          mpi::site.MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
          "MPI_Group_incl", error) &&
      mpi::check(
          mpi::site.MPI_Comm_create_group(mpi::world(), members, set % 32'000, &communicator),
          "MPI_Comm_create_group", error);
  if (members != mpi::site.group_null) mpi::site.MPI_Group_free(&members);
  if (all != mpi::site.group_null) mpi::site.MPI_Group_free(&all);
  return good ? communicator : mpi::site.comm_null;
}

Backend* create(const GroupContext& group, ErrorText& error) noexcept {
  try {
    std::vector<int> ranks;
    if (!mpi::initialise(error) || !mpi::make_datatypes(error) ||
        !exchange_ranks(group, ranks, error) ||
        !mpi::start(Clock::now() + std::chrono::milliseconds(group.timeout_ms), error)) {
      return nullptr;
    }
    mpi::set_ranks_on_host(group.local_size);
    const MPI_Comm communicator = make_communicator(ranks, group.set, error);
    if (communicator == mpi::site.comm_null) return nullptr;
    return new MpiBackend(communicator, group.index, group.size);
  } catch (const std::exception& failure) {
    error.set("%s", failure.what());
    return nullptr;
  }
}

// A score above Gloo's and below shared memory's.
constexpr auto kRows = rows_for_all_operations({.score = 150});
constexpr BackendDescriptor kDescriptor =
    backend_descriptor("mpi", "MPI", kRows, create, version, probe);

}  // namespace
}  // namespace hora::collectives

extern "C" __attribute__((visibility("default"))) const hora::collectives::BackendDescriptor*
hora_backend_descriptor(hora::collectives::ErrorText& why_not) {
  if (!hora::collectives::mpi::open_library(why_not)) return nullptr;
  return &hora::collectives::kDescriptor;
}

extern "C" __attribute__((visibility("default"))) const hora::collectives::LauncherBootstrap*
hora_launcher_bootstrap() {
  return &hora::collectives::mpi::launcher_bootstrap();
}
