// SPDX-License-Identifier: Apache-2.0
// Which rank runs where, and which program: hosts and a number of processes, or a rankfile, become
// ranks.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Which rank runs where, and which program: hosts and a number of processes become ranks.

// How many ranks a job gets.

// The ranks of a job for which no number was given: one for each slot. 64 bits wide, since many
// hosts with many slots exceed an int.
std::int64_t count_slots(const std::vector<Host>& hosts);
// Errors (kUsage): a job with a rank for each of these slots is too large.
Status check_rank_count(std::int64_t slots);
// Errors (kUsage): no host can run that many ranks. Slots that a host list gives are within the
// limit; -np alone, which is for this machine, may exceed it.
Status check_ranks_of_host(const std::string& host, std::int64_t ranks);

// Jobs of several programs: which rank runs which.

// The place of the rank's program among `programs`, which is not empty. Ranks beyond all of them
// belong to the last one.
std::size_t program_of_rank(const std::vector<Program>& programs, int rank);

// "./a --lr 3 : ./b", as it would be typed but for options.
std::string programs_text(const std::vector<std::vector<std::string>>& commands);
// Of every program of the job, one or several.
std::vector<std::vector<std::string>> commands_of(const JobSpec& spec);

// Who runs where: hosts and a number of processes become ranks.

struct Slot {
  int rank = 0;
  int local_rank = 0;
  int cross_rank = 0;
  int cross_size = 1;
  std::string cores = {};  // that --rankfile gives it, as in RankSeat
  friend bool operator==(const Slot&, const Slot&) = default;
};

struct HostPlan {
  Host host;
  int index = 0;            // 0..hosts-1, the order of the host list; GROUP_RANK
  std::vector<Slot> slots;  // by local rank; local_size = slots.size(); never empty
  friend bool operator==(const HostPlan&, const HostPlan&) = default;
};

struct Plan {
  int world_size = 0;
  std::vector<HostPlan> hosts;  // only hosts that run at least one rank
  friend bool operator==(const Plan&, const Plan&) = default;
};

// For messages: the name of hosts[index], "an unknown host" when there is none.
std::string planned_host_name(const std::vector<HostPlan>& hosts, int index);

// A job larger than this is taken for a slip of the finger.
inline constexpr int kMaxRanks = 1'000'000;

// Fills hosts in order with consecutive ranks until `num_proc` are placed (contract 2.3, with np
// as an upper bound), or deals the ranks to the hosts in turn. Every host's slots must be set.
// num_proc 0 means all slots.
// Errors: fewer slots than num_proc; no slot at all; slots that are not settled.
Result<Plan> plan_job(const std::vector<Host>& hosts, int num_proc, MapBy map_by = MapBy::kSlot);

// By the seats of the job, if it has any, else as above. The host of rank 0 comes first, then the
// others by their lowest rank.
Result<Plan> plan_job(const JobSpec& spec, const std::vector<Host>& hosts);

// Errors (kUsage): --show-ranks asks for a rank that the plan lacks. The ranks of an elastic job
// come and go, and a job that is started again may have fewer.
Status check_shown_ranks(const JobSpec& spec, const Plan& plan);

// How many slots the hosts that were named without a number offer.
//   step 1, from the command line alone: every one gets `slots_per_host`, or one slot. With
//   `slots_per_host_auto` they stay open, to be settled by step 2 when the agents have counted.
//   No hosts at all: this machine, by the name "localhost", with num_proc slots.
std::vector<Host> settle_named_slots(const JobSpec& spec);
bool has_open_slots(const std::vector<Host>& hosts);
//   step 2: an open host gets a slot for each of its GPUs, or for each `gpus_per_rank` of them;
//   gpus[i] belongs to hosts[i].
// Errors: an open host without a GPU.
Result<std::vector<Host>> settle_gpu_slots(std::vector<Host> hosts, const std::vector<int>& gpus,
                                           std::string_view gpus_per_rank);
// The slots of a host with this many GPUs, at least one: with too few of them its agent says so.
int slots_for_gpus(int gpus, std::string_view gpus_per_rank);

// The place of every rank, as Open MPI's rankfiles give it.
//   rank 0=node1 slot=0:0-3      # cores 0-3 of socket 0 of node1; binding.h has the syntax
//   rank 1=+n1                   // the second host of -H or of the hostfile, without binding

struct RankLine {
  int rank = 0;
  Host host;                    // without slots
  std::optional<int> relative;  // "+n1": 1, and no host
  std::string cores;            // as written; empty: the rank is not bound
  std::size_t number = 0;       // of the line, from 1
};

// By rank, from 0 without a gap. Errors (kUsage) say `path:line:column`.
Result<std::vector<RankLine>> parse_rankfile(std::string_view text, std::string_view path);

// Sets the seats of the job, and its number of ranks if it has none. A job without hosts gets those
// of the file; hosts without slots get as many as the file fills.
// Errors (kUsage): a host that the job does not have, too few slots, another number of ranks.
Status seat_ranks(const std::vector<RankLine>& lines, std::string_view path, JobSpec& job);

}  // namespace hora::launcher
