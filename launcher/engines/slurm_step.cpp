// SPDX-License-Identifier: Apache-2.0
// srun(1), "Input environment variables", of 22.05 to 26.05. SLURM_HOSTFILE and a few others are
// not in that list; srun reads them nevertheless.
#include "launcher/engines/slurm_step.h"

#include <algorithm>
#include <initializer_list>

namespace hora::launcher::slurm {

namespace {

// srun takes these for options. They describe the tasks of the user's job, or what becomes of their
// output; an agent's step has one task on each node, with all of the job's share of that node.
// tests/integration/engines/test_slurm_options.py compares the list with the manual of each Slurm.
constexpr std::string_view kOptionsOfTheJob[] = {
    // tasks and where they run
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES", "SLURM_CPUS_PER_TASK",
    "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_THREADS_PER_CORE", "SLURM_NSOCKETS_PER_NODE",
    "SLURM_NCORES_PER_SOCKET", "SLURM_CORE_SPEC", "SLURM_THREAD_SPEC", "SLURM_HINT",
    "SLURM_DISTRIBUTION", "SLURM_DIST_PLANESIZE", "SLURM_HOSTFILE", "SLURM_ARBITRARY_NODELIST",
    "SLURM_CONSTRAINT", "SLURM_CLUSTER_CONSTRAINT", "SLURM_USE_MIN_NODES", "SLURM_SPREAD_JOB",
    "SRUN_SEGMENT_SIZE", "SLURM_SPREAD_SEGMENTS", "SLURM_CONSOLIDATE_SEGMENTS", "SLURM_EXACT",
    "SLURM_EXCLUSIVE", "SLURM_OVERCOMMIT", "SLURM_RESV_PORTS",
    // GPUs and memory
    "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND", "SLURM_GRES", "SLURM_STEP_GRES", "SLURM_GRES_FLAGS", "SLURM_TRES_BIND",
    "SLURM_TRES_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE",
    "SLURM_MEM_BIND",
    // the program, its input and its output
    "SLURM_SRUN_MULTI", "SLURM_BCAST", "SLURM_BCAST_EXCLUDE", "SLURM_SEND_LIBS", "SLURM_TEST_EXEC",
    "SLURM_REMOTE_CWD", "SLURM_WORKING_DIR", "SRUN_EXPORT_ENV", "SLURM_LABELIO",
    "SLURM_UNBUFFEREDIO", "SLURM_OPEN_MODE", "SLURM_STDINMODE", "SLURM_STDOUTMODE",
    "SLURM_STDERRMODE", "SRUN_INPUT", "SRUN_OUTPUT", "SRUN_ERROR",
    "SLURM_DEBUG",  // excludes --quiet
    // when it ends
    "SLURM_TIMELIMIT", "SLURM_IMMEDIATE", "SLURM_DEPENDENCY", "SLURM_NO_KILL", "SLURM_OOMKILLSTEP",
    "SLURM_OOM_KILL_STEP", "SLURM_STEP_KILLED_MSG_NODE_ID"};

using Words = std::vector<std::string>;

void add(Words& words, std::initializer_list<const char*> more) {
  words.insert(words.end(), more.begin(), more.end());
}

bool are_equal(const std::vector<int>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// Variables where they will do: a Slurm that does not know one ignores it, and an option of
// --engine-args wins. --cpu-bind=none would warn where binding is not configured. By
// SLURM_EXTERNAL_LAUNCHER (23.11) a step has all of the job's share, GPUs and memory too, and takes
// nothing away from other steps; up to 23.02 SLURM_OVERLAP does the latter.
//
// srun hands its environment to the nodes in the clear: nothing but what a shell needs to find
// programs and the user's cache.
Words environment_of_a_step(const EngineInputs& inputs, const std::string& gpus) {
  Words words{"env"};
  for (const std::string_view name : kOptionsOfTheJob) {
    if (!inputs.variable(name)) continue;
    words.emplace_back("-u");
    words.emplace_back(name);
  }
  add(words, {"SLURM_CPU_BIND=none", "SLURM_MPI_TYPE=none", "SLURM_EXTERNAL_LAUNCHER=1",
              "SLURM_EXPORT_ENV=HOME,PATH,USER,LOGNAME,TMPDIR,XDG_CACHE_HOME"});
  words.push_back(gpus);
  return words;
}

}  // namespace

// Without --unbuffered srun would pass whole lines only.
Words starter(const EngineInputs& inputs, const Words& args, const Gpus& gpus) {
  Words words = environment_of_a_step(inputs, "SLURM_OVERLAP=1");
  if (!gpus.counts.empty() && are_equal(gpus.counts)) {
    words.push_back("SLURM_GPUS_PER_NODE=" + std::to_string(gpus.counts.front()));
  }
  add(words, {"srun", "--unbuffered", "--nodes=1", "--ntasks=1", "--input=0", "--quiet"});
  words.insert(words.end(), args.begin(), args.end());
  add(words, {"--nodelist={host}", "sh", "-c", "{command}"});
  return words;
}

// A task that ends, well or badly, is no reason to end the others, and neither is a node that
// fails: an elastic job goes on without it. The tasks say whole lines, so srun need not be
// --unbuffered, which gives each of them a terminal.
//
// Up to 23.02, a step that overlaps others does not get unequal numbers of GPUs; one that does not
// waits for them (findings/slurm-step-of-a-gpu-sum.sh).
EngineStep step(const EngineInputs& inputs, const Words& args, const Gpus& gpus) {
  EngineStep step;
  step.name = "srun";
  const bool unequal = !are_equal(gpus.counts);
  step.start = environment_of_a_step(inputs, unequal ? "SLURM_GPUS={gpus}" : "SLURM_OVERLAP=1");
  if (unequal) {
    for (std::size_t i = 0; i < gpus.counts.size(); ++i) {
      step.gpus[gpus.hosts[i].name] = gpus.counts[i];
    }
  } else if (!gpus.counts.empty()) {
    step.start.push_back("SLURM_GPUS_PER_NODE=" + std::to_string(gpus.counts.front()));
  }
  add(step.start,
      {"SLURM_KILL_BAD_EXIT=0", "SLURM_WAIT=0", "srun", "--nodes={count}", "--ntasks={count}",
       "--ntasks-per-node=1", "--input=all", "--no-kill", "--quiet"});
  step.start.insert(step.start.end(), args.begin(), args.end());
  add(step.start, {"--nodelist={hosts}"});
  step.copy = {"sbcast", "--jobid={step}", "{from}", "{to}"};
  step.step_text = "$SLURM_JOB_ID.$SLURM_STEP_ID";
  step.host_text = "$SLURMD_NODENAME";
  step.launcher_text = "$SLURM_LAUNCH_NODE_IPADDR";
  return step;
}

}  // namespace hora::launcher::slurm
