// SPDX-License-Identifier: Apache-2.0
// Open MPI 5 accepts "-mca NAME VALUE" with one dash, and then ignores it for its own daemons
// (findings/open-mpi-single-dash.sh); 5.0.10 and later refuse "-bind-to". Two dashes work with all.
#include "launcher/plan/mpi_launchers.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Its output files are on the host of each rank. Without ":nojobid" a folder "1" is in between.
// Its --stdin all reaches no rank.
constexpr MpiLauncher kOpenMpi4{
    .name = "Open MPI",
    .mark = "(Open",  // MPI) or, called by another name, RTE)
    .first_major = 4,
    .two_dashes = true,
    // It refuses root by default, and containers often run as root.
    .always = "--allow-run-as-root",
    .hosts = "-H",
    .tag = "--tag-output",
    .timestamp = "--timestamp-output",
    .merge_stderr = "--merge-stderr-to-stdout",
    .stdin_none = "--stdin none",
    .timeout = "--timeout",
    .unbound = "--bind-to none --map-by slot",
    .output = "--output-filename",
    .output_suffix = ":nojobid",
    .ssh_agent = "--mca plm_rsh_agent",
    .ssh_arguments = "--mca plm_rsh_args",
    .ssh_from_here = "--mca plm_rsh_no_tree_spawn true",
    .ssh_at_once = "--mca plm_rsh_num_concurrent",
};

// The launcher is PRRTE, whose parameters for ssh have other names, and whose daemons end when they
// do not find the program of plm_ssh_agent on their own host.
constexpr MpiLauncher open_mpi_5() {
  MpiLauncher launcher = kOpenMpi4;
  launcher.name = "Open MPI 5";
  launcher.first_major = 5;
  // findings/open-mpi-output-files.sh
  launcher.output = launcher.output_suffix = "";
  launcher.no_output = "its mpirun loses a part of the output";
  launcher.ssh_agent = "--mca plm_ssh_agent";
  launcher.ssh_arguments = "--mca plm_ssh_args";
  launcher.ssh_from_here = "--mca plm_ssh_no_tree_spawn true";
  launcher.ssh_at_once = "--mca plm_ssh_num_concurrent";
  launcher.daemons_need_agent = true;
  return launcher;
}

// Here --stdin all works, and no output is lost; but the files lie in a folder that is named after
// mpirun's own process.
constexpr MpiLauncher open_mpi_6() {
  MpiLauncher launcher = open_mpi_5();
  launcher.name = "Open MPI 6";
  launcher.first_major = 6;
  launcher.stdin_all = "--stdin all";
  launcher.no_output = "its files have other names; --mpi-args '--output dir=DIR' has them written";
  return launcher;
}

constexpr MpiLauncher open_mpi_3() {
  MpiLauncher launcher = kOpenMpi4;
  launcher.first_major = 0;
  launcher.output_suffix = "";
  return launcher;
}

// Derived from Open MPI 4; has options of its own with one dash.
constexpr MpiLauncher spectrum() {
  MpiLauncher launcher = kOpenMpi4;
  launcher.name = "IBM Spectrum MPI";
  launcher.mark = "IBM Spectrum MPI";
  launcher.first_major = 0;
  launcher.two_dashes = false;
  launcher.unbound = "--bind-to socket --map-by socket --rank-by core";
  launcher.chooses_network = true;
  return launcher;
}

// Hydra. -launcher is needed where it would choose another one: in an allocation of Slurm the
// arguments for ssh would go to srun. It passes stdin to rank 0 only.
constexpr MpiLauncher kMpich{
    .name = "MPICH",
    .mark = "HYDRA",
    .is_hydra = true,
    .hosts = "-hosts",
    .tag = "-l",
    .unbound = "-bind-to none -map-by slot",
    .output = "-outfile-pattern",
    .output_suffix = "/rank.%r/stdout",
    .errors = "-errfile-pattern",
    .errors_suffix = "/rank.%r/stderr",
    .ssh = "-launcher ssh",
    .ssh_agent = "-launcher-exec",
    .ssh_arguments_variable = "HYDRA_LAUNCHER_EXTRA_ARGS",
};

// Hydra, too, but hosts have no slots of their own: in "a:2" all of it is taken for the name. It
// pins ranks to cores by itself, unlike MPICH.
constexpr MpiLauncher intel() {
  MpiLauncher launcher = kMpich;
  launcher.name = "Intel MPI";
  launcher.mark = "Intel(R) MPI";
  launcher.per_host = "-ppn";
  launcher.stdin_all = "-s all";
  launcher.unbound = "";
  launcher.unbound_variable = "I_MPI_PIN";
  launcher.ssh_arguments = "-bootstrap-exec-args";
  launcher.ssh_arguments_variable = "";
  return launcher;
}

// The first row that fits counts. Spectrum MPI prints "Open MPI", too.
constexpr MpiLauncher kLaunchers[] = {spectrum(),   open_mpi_6(), open_mpi_5(), kOpenMpi4,
                                      open_mpi_3(), intel(),      kMpich};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The number after the mark: "mpirun (Open MPI) 5.0.11" has 5.
int major_after(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find_first_of("0123456789", text.find(mark) + mark.size());
  int number = 0;
  if (at != std::string_view::npos) {
    std::from_chars(text.data() + at, text.data() + text.size(), number);
  }
  return number;
}

}  // namespace

Result<const MpiLauncher*> find_mpi_launcher(std::string_view text) {
  for (const MpiLauncher& row : kLaunchers) {
    if (contains(text, row.mark) && major_after(text, row.mark) >= row.first_major) return &row;
  }
  const std::string first(trim(text.substr(0, text.find('\n'))));
  return usage("--mpi: mpirun --version says " + quote(first) +
               ", expected Open MPI, IBM Spectrum MPI, MPICH or Intel(R) MPI; install one of them, "
               "or omit --mpi");
}

}  // namespace hora::launcher
