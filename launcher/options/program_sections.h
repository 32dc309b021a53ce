// SPDX-License-Identifier: Apache-2.0
// Jobs of several programs: "-np 2 ./a : -np 2 ./b", the same in a file, and srun's --multi-prog.
// [pure]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/option_check.h"
#include "launcher/options/settings.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// "-np 2 ./a : -np 2 ./b", or the same in a file: jobs of several programs, as mpirun and Hydra
// have them.

// The arguments after one ':', up to the next, or in a line of a file.
struct ProgramSection {
  Spelled spelled;
  std::string place;  // "FILE:3" in a file of programs; else empty
};

// Whether each program may have its own; the others are for the whole job.
bool is_option_of_program(const OptionRow& row);

// Errors (kUsage): a job that can have one program only.
Status check_may_have_programs(const JobSpec& job);

// Takes from `spelled` the part after the first ':' of its command, and returns it by program; none
// for a job of one program. After "--" a ':' is an ordinary argument. Errors (kUsage): an option
// that is unknown, or one for the whole job; no program.
Result<std::vector<ProgramSection>> take_program_sections(Spelled& spelled);

// mpirun begins a program after every ':'. The hint about a ':' that may be meant so and is an
// argument here; nothing for other command lines. After take_program_sections().
std::optional<std::string> colon_warning(const Spelled& first,
                                         const std::vector<ProgramSection>& sections);

// What --programs names: all programs, the first one included. Errors (kUsage) begin with the file
// and the line.
Result<std::vector<ProgramSection>> read_program_file(const std::string& path,
                                                      const ProcessInputs& inputs);

// Sets job.programs, and job.num_proc to their sum; `first` has the options that stood before the
// file, whose -x are for every program. A file of one program makes a job of one.
// Errors (kUsage): as below; -np that is not the sum.
Status use_program_file(const std::vector<ProgramSection>& sections, const Spelled& first,
                        const ProcessInputs& inputs, JobSpec& job,
                        std::vector<std::string>& warnings);

// Sets job.programs, and job.num_proc to their sum. `job` is that of the first program, complete,
// and `first` are its options, configuration included.
// Errors (kUsage): a program without -np; what jobs of several programs cannot have.
Status read_program_sections(const std::vector<ProgramSection>& sections, const Spelled& first,
                             const ProcessInputs& inputs, JobSpec& job,
                             std::vector<std::string>& warnings);

// --multi-prog, srun's: the program is a file whose lines say what which ranks run.

// `job` is complete; its command is the file. Lines are "0,2-3 PROGRAM ARGUMENTS" or "* ..." for
// the ranks that no other line has; in them, %t is the rank and %o its place among those of the
// line. Ranks in a row with the same words are one of job.programs; the variables are for all.
// Errors (kUsage) begin with the file and the line.
Status use_rank_programs(const ProcessInputs& inputs, JobSpec& job);

}  // namespace hora::launcher
