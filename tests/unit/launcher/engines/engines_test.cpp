// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <map>

#include "launcher/engines/engine.h"
#include "launcher/engines/registry.h"
#include "tests/support/catch.h"
#include "tests/support/generated_page.h"

namespace hora::launcher {
namespace {

using Texts = std::map<std::string, std::string, std::less<>>;

EngineInputs inputs(Texts variables, Texts files = {}, std::vector<std::string> programs = {},
                    std::optional<std::string> answer = {}) {
  return {[variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            if (found == variables.end()) return std::nullopt;
            return found->second;
          },
          [files = std::move(files)](const std::string& path) -> Result<std::string> {
            const auto found = files.find(path);
            if (found == files.end()) return errno_error(ENOENT, "opening " + path);
            return found->second;
          },
          [programs = std::move(programs)](std::string_view name) {
            return std::find(programs.begin(), programs.end(), name) != programs.end();
          },
          [answer = std::move(answer)](const std::vector<std::string>&) { return answer; }};
}

Result<Allocation> find(const EngineInputs& in, const std::vector<std::string>& args = {}) {
  const EngineDescriptor* const engine = engine_here(in);
  REQUIRE(engine != nullptr);
  return engine->find(in, args);
}

std::string hosts_of(const EngineInputs& in) {
  const auto found = find(in);
  if (!found) FAIL(found.error().message);
  return format_host_list(found->hosts);
}

std::string error_of(const EngineInputs& in) {
  const auto found = find(in);
  REQUIRE_FALSE(found);
  CHECK(found.error().code == ErrorCode::kUsage);
  return found.error().message;
}

std::string name_of(const Texts& variables) {
  const EngineDescriptor* const engine = engine_here(inputs(variables));
  return engine == nullptr ? "" : std::string(engine->name);
}

TEST_CASE("engines: which one is here") {
  CHECK(name_of({}) == "");
  CHECK(name_of({{"SLURM_JOB_ID", ""}}) == "");
  CHECK(name_of({{"SLURM_JOB_ID", "1"}}) == "slurm");
  CHECK(name_of({{"LSB_JOBID", "1"}}) == "lsf");
  CHECK(name_of({{"PE_HOSTFILE", "/x"}}) == "sge");
  CHECK(name_of({{"PBS_JOBID", "1"}}) == "pbs");
  CHECK(name_of({{"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}}) == "mpijob");
  CHECK(name_of({{"PRTE_MCA_prte_default_hostfile", "/etc/mpi/hostfile"}}) == "mpijob");
  // A user's own setting of Open MPI is not a job of Kubernetes.
  CHECK(name_of({{"OMPI_MCA_orte_default_hostfile", "/home/me/hosts"}}) == "");
  CHECK(name_of({{"MPI_HOST", "a,b"}, {"VC_TASK_INDEX", "0"}}) == "volcano");
  EngineInputs pod = inputs({{"MPI_HOST", "a,b"}});
  CHECK(engine_here(pod) == nullptr);  // a user's own variable
  pod.variable_names = [] { return std::vector<std::string>{"MPI_HOST", "VC_WORKER_HOSTS"}; };
  CHECK(engine_here(pod) != nullptr);
}

TEST_CASE("engines: Slurm's tasks are the slots, unequal ones too") {
  Texts job{{"SLURM_JOB_ID", "4711"},
            {"SLURM_JOB_NODELIST", "sn[1-4]"},
            {"SLURM_NTASKS", "8"},
            {"SLURM_TASKS_PER_NODE", "4,2,1(x2)"}};
  CHECK(hosts_of(inputs(job)) == "sn1:4,sn2:2,sn3:1,sn4:1");
  const auto found = find(inputs(job), {"--cpu-bind=cores"});
  REQUIRE(found);
  CHECK(found->job == "4711");
  CHECK(found->starter.back() == "{command}");
  CHECK(std::count(found->starter.begin(), found->starter.end(), "--cpu-bind=cores") == 1);
  // What the user's tasks need is not for the one task that an agent is.
  CHECK(std::count(found->starter.begin(), found->starter.end(), "SLURM_NTASKS") == 1);
  CHECK(std::count(found->starter.begin(), found->starter.end(), "SLURM_GPU_BIND") == 0);
  CHECK(allocation_text(*engine_here(inputs(job)), *found, "srun") ==
        "Slurm job 4711: 8 slots on 4 hosts (sn1:4,sn2:2,sn3:1,sn4:1); agents start by srun");

  job["SLURM_JOB_NODELIST"] = "a-[01,03],gpu7,b[1-2]-x";
  job["SLURM_TASKS_PER_NODE"] = "2(x5)";
  CHECK(hosts_of(inputs(job)) == "a-01:2,a-03:2,gpu7:2,b1-x:2,b2-x:2");
  job["SLURM_TASKS_PER_NODE"] = "2(x4)";
  CHECK(error_of(inputs(job)).find("counts 4 nodes, $SLURM_JOB_NODELIST names 5") !=
        std::string::npos);
  for (const char* bad :
       {"", "x", "2(x", "2(x5", "2(x0)", "2(x6)", "-1(x5)", "2(x99999999999)", "1,,1,1,1"}) {
    INFO(bad);
    job["SLURM_TASKS_PER_NODE"] = bad;
    CHECK(error_of(inputs(job)).find("$SLURM_TASKS_PER_NODE") != std::string::npos);
  }
}

TEST_CASE("engines: where Slurm was asked for no tasks") {
  Texts job{
      {"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "64(x2)"}};
  // As srun would: one for each node, not one for each of its processors.
  CHECK(hosts_of(inputs(job)) == "n1:1,n2:1");
  job["SLURM_GPUS_ON_NODE"] = "8";
  CHECK(hosts_of(inputs(job)) == "n1:8,n2:8");
  job["SLURM_GPUS_PER_NODE"] = "a100:2,v100:1";
  CHECK(hosts_of(inputs(job)) == "n1:3,n2:3");
  job["SLURM_NTASKS_PER_NODE"] = "64";
  CHECK(hosts_of(inputs(job)) == "n1:64,n2:64");
}

TEST_CASE("engines: GPUs that Slurm was asked for as a sum") {
  Texts job{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n1"}, {"SLURM_GPUS", "a100:4"}};
  CHECK(hosts_of(inputs(job)) == "n1:4");
  job["SLURM_JOB_NODELIST"] = "n[1-2]";
  auto found = find(inputs(job));
  REQUIRE(found);
  CHECK(found->slots_are_free);
  CHECK(found->unclear_slots.find("the job has 4 GPUs on 2 nodes") == 0);
  job["SLURM_GPUS_ON_NODE"] = "2";
  found = find(inputs(job));
  REQUIRE(found);
  CHECK(found->unclear_slots.empty());
  CHECK(format_host_list(found->hosts) == "n1:2,n2:2");
  // One node has 3 of them, and this one 1.
  job["SLURM_GPUS_ON_NODE"] = "1";
  found = find(inputs(job));
  REQUIRE(found);
  CHECK_FALSE(found->unclear_slots.empty());
  job["SLURM_NTASKS"] = "4";
  job["SLURM_TASKS_PER_NODE"] = "3,1";
  found = find(inputs(job));
  REQUIRE(found);
  CHECK(found->unclear_slots.empty());
  CHECK_FALSE(found->slots_are_free);
}

TEST_CASE("engines: scontrol knows which node has how many GPUs") {
  Texts job{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_GPUS", "5"}};
  const std::string listed =
      "JobId=1 JobName=x\n   JOB_GRES=gpu:5\n"
      "     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0,2),shard:4(IDX:0)\n"
      "     Nodes=n3 CPU_IDs=0 Mem=0 GRES=gpu:a100:1(IDX:0)\n";
  const auto found = find(inputs(job, {}, {}, listed));
  REQUIRE(found);
  CHECK(format_host_list(found->hosts) == "n1:2,n2:2,n3:1");
  CHECK(found->unclear_slots.empty());
  // The step asks for the GPUs of its own hosts, and not while another step has them.
  const auto has = [&](std::string_view word) {
    const auto& words = found->step->start;
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  CHECK(has("SLURM_GPUS={gpus}"));
  CHECK_FALSE(has("SLURM_OVERLAP=1"));
  CHECK(found->step->gpus.at("n3") == 1);
  // Tasks that Slurm counts by GPUs, and spreads as it likes.
  job["SLURM_NTASKS"] = "5";
  job["SLURM_NTASKS_PER_GPU"] = "1";
  job["SLURM_TASKS_PER_NODE"] = "3,1(x2)";
  CHECK(hosts_of(inputs(job, {}, {}, listed)) == "n1:2,n2:2,n3:1");
  for (const char* other : {"", "Nodes=n[1- GRES=gpu:1", "Nodes=n1 GRES=gpu:4(IDX:0-3)\n"}) {
    INFO(other);
    CHECK(hosts_of(inputs(job, {}, {}, other)) == "n1:3,n2:1,n3:1");
  }
}

TEST_CASE("engines: a step of Slurm asks for the GPUs of the user's tasks") {
  const auto start_of = [](const Texts& job) {
    const auto found = find(inputs(job));
    REQUIRE(found);
    std::string text;
    for (const std::string& word : found->step->start) text += word + " ";
    return text;
  };
  Texts job{{"SLURM_JOB_ID", "1"},
            {"SLURM_JOB_NODELIST", "n[1-2]"},
            {"SLURM_NTASKS", "4"},
            {"SLURM_TASKS_PER_NODE", "2(x2)"},
            {"SLURM_GPUS_PER_TASK", "2"}};
  CHECK(start_of(job).find("-u SLURM_GPUS_PER_TASK") != std::string::npos);
  CHECK(start_of(job).find(" SLURM_GPUS_PER_NODE=4 ") != std::string::npos);
  CHECK(start_of(job).find(" SLURM_OVERLAP=1 ") != std::string::npos);
  job["SLURM_TASKS_PER_NODE"] = "3,1";
  CHECK(start_of(job).find(" SLURM_GPUS={gpus} ") != std::string::npos);
}

TEST_CASE("engines: which hosts an allocation has now") {
  const std::vector<Host> start{{"n1", "", 4}, {"n2", "", 2}};
  const EngineDescriptor& slurm = *find_engine("slurm");
  const auto hosts = [&](std::string_view printed) {
    const auto now = slurm.hosts_now(printed, "13", start);
    if (!now) return "error: " + now.error().message;
    return now->ended.empty() ? format_host_list(now->hosts) : now->ended;
  };
  // The lines of an array's other jobs come with those of the first.
  CHECK(hosts("14 RUNNING n[7-8]\n13 RUNNING n[1-3]\n") == "n1:4,n2:2,n3:2");
  CHECK(hosts("13 RUNNING n2\n") == "n2:2");
  CHECK(hosts("13 SUSPENDED n1\n") == "n1:4");
  CHECK(hosts("13 CANCELLED n[1-2]\n") == "job 13 is CANCELLED");
  CHECK(hosts("13 PENDING \n") == "job 13 is PENDING");
  for (const char* bad : {"", "14 RUNNING n1\n", "13\n", "13 RUNNING\n", "13 RUNNING n[1-\n"}) {
    INFO(bad);
    CHECK(hosts(bad).find("error: ") == 0);
  }
  const Texts job{{"SLURM_JOB_ID", "13"}, {"SLURM_JOB_NODELIST", "n1"}};
  const auto found = find(inputs(job, {}, {"squeue"}));
  REQUIRE(found);
  REQUIRE(found->watch);
  CHECK(found->watch->script.find(" --jobs=13") != std::string::npos);
  CHECK_FALSE(find(inputs(job))->watch);
  CHECK_FALSE(
      find(inputs({{"SLURM_JOB_ID", "1;x"}, {"SLURM_JOB_NODELIST", "n1"}}, {}, {"squeue"}))->watch);

  const Texts pod{{"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}};
  const Texts files{{"/etc/mpi/hostfile", "w-0.s slots=3\nw-1.s slots=3\n"}};
  CHECK_FALSE(find(inputs(pod, files))->watch);
  Texts more = files;
  more["/etc/mpi/discover_hosts.sh"] = "#!/bin/sh\n";
  CHECK(find(inputs(pod, more))->watch->script == "/bin/sh /etc/mpi/discover_hosts.sh");
  const EngineDescriptor& mpijob = *find_engine("mpijob");
  const auto now = mpijob.hosts_now("w-1.s\nw-2.s\n", "", find(inputs(pod, more))->hosts);
  REQUIRE(now);
  CHECK(format_host_list(now->hosts) == "w-1.s:3,w-2.s:3");
  CHECK(mpijob.hosts_now("\n", "", {})->hosts.empty());
  CHECK(allocation_change_text(slurm, "13", {{"n1", "", 4}, {"n3", "", 2}}) ==
        "Slurm job 13 has 6 slots on 2 hosts now (n1:4,n3:2)");
  CHECK(allocation_change_text(mpijob, "", {}) ==
        "MPIJob, TrainJob (Kubernetes) has 0 slots on 0 hosts now");
}

TEST_CASE("engines: what cannot be used in Slurm is an error") {
  Texts job{{"SLURM_JOB_ID", "1"}};
  CHECK(error_of(inputs(job)) == "$SLURM_JOB_NODELIST is not set");
  job["SLURM_JOB_NODELIST"] = "n[1-";
  CHECK(error_of(inputs(job)).find("$SLURM_JOB_NODELIST") == 0);
  job["SLURM_JOB_NODELIST"] = "n1";
  job["SLURM_STEP_NUM_TASKS"] = "8";
  CHECK(error_of(inputs(job)).find("srun has started 8 of this horarun") == 0);
  // In the shell of `srun --pty` a user types.
  job["SLURM_PTY_PORT"] = "40000";
  job["SLURM_PROCID"] = "0";
  CHECK(hosts_of(inputs(job)) == "n1:1");
  job["SLURM_PROCID"] = "1";
  CHECK(error_of(inputs(job)).find("srun has started 8 of this horarun") == 0);
  job["SLURM_STEP_NUM_TASKS"] = "1";
  CHECK(hosts_of(inputs(job)) == "n1:1");
  job["SLURM_HET_SIZE"] = "2";
  CHECK(error_of(inputs(job)) == "component 0: $SLURM_JOB_NODELIST is not set");
}

TEST_CASE("engines: the components of a heterogeneous job are one allocation") {
  const Texts job{{"SLURM_JOB_ID", "7"},
                  {"SLURM_HET_SIZE", "2"},
                  {"SLURM_NTASKS", "5"},
                  {"SLURM_JOB_NODELIST_HET_GROUP_0", "n[1-2]"},
                  {"SLURM_NTASKS_HET_GROUP_0", "4"},
                  {"SLURM_TASKS_PER_NODE_HET_GROUP_0", "2(x2)"},
                  {"SLURM_JOB_NODELIST_HET_GROUP_1", "big"},
                  {"SLURM_GPUS_PER_NODE_HET_GROUP_1", "3"}};
  const auto found = find(inputs(job, {}, {"squeue"}), {"--exact"});
  REQUIRE(found);
  CHECK(found->job == "7");
  CHECK(format_host_list(found->hosts) == "n1:2,n2:2,big:3");
  CHECK_FALSE((found->step || found->watch || found->slots_are_free));
  const auto& words = found->starter;
  const auto script = std::find(words.begin(), words.end(), "-c") + 1;
  CHECK(script->find("case $0 in n1|n2) group=0 ;; big) group=1 ;; esac; exec srun ") == 0);
  CHECK(std::vector<std::string>(script + 1, words.end()) ==
        std::vector<std::string>{"{host}", "--exact", "sh", "-c", "{command}"});
}

TEST_CASE("engines: inside of a step of Slurm its hosts are those of the step") {
  Texts job{{"SLURM_JOB_ID", "1"},         {"SLURM_JOB_NODELIST", "n[1-3]"},
            {"SLURM_NTASKS", "1"},         {"SLURM_TASKS_PER_NODE", "1"},
            {"SLURM_STEP_NODELIST", "n2"}, {"SLURM_STEP_NUM_TASKS", "1"},
            {"SLURMD_NODENAME", "n2"},     {"SLURM_STEP_ID", "0"}};
  const auto found = find(inputs(job, {}, {"squeue"}));
  REQUIRE(found);
  CHECK(format_host_list(found->hosts) == "n2:1");
  CHECK(found->is_step);
  CHECK(found->this_host == "n2");
  CHECK_FALSE(found->watch);
  // salloc's shell on a node is a step, too, with all that the job has.
  job["SLURM_TASKS_PER_NODE"] = "2(x3)";
  for (const char* shell : {"4294967290", "-6"}) {
    job["SLURM_STEP_ID"] = shell;
    CHECK(hosts_of(inputs(job)) == "n1:2,n2:2,n3:2");
  }
}

TEST_CASE("engines: the hosts on which srun starts nothing") {
  const auto failed = [](std::string_view said) {
    std::string text;
    for (const FailedHost& each : find_engine("slurm")->failed_hosts(said)) {
      text += each.name + ": " + each.words + "\n";
    }
    return text;
  };
  const std::string launch =
      "srun: error: Task launch for StepId=1.0 failed on node n2: Communication connection failure";
  CHECK(failed("srun: x\n" + launch + "\nsrun: error: Application launch failed: ...\n") ==
        "n2: " + launch + "\n");
  const std::string copy =
      "sbcast: error: REQUEST_FILE_BCAST(n3): Communication connection failure";
  CHECK(failed(copy + "\n") == "n3: " + copy + "\n");
  CHECK(failed("srun: error: Task launch for StepId=1.0 failed on node n2").empty());
  CHECK(failed("sbcast: error: REQUEST_FILE_BCAST(n2): Read-only file system\n").empty());
  CHECK(failed("").empty());
}

TEST_CASE("engines: LSF, Grid Engine, PBS, MPIJob and Volcano") {
  CHECK(hosts_of(inputs({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "a 2 b 1 "}})) == "a:2,b:1");
  CHECK(
      hosts_of(inputs({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "z 9"}, {"LSB_DJOB_HOSTFILE", "/f"}},
                      {{"/f", "a\na\nb\n"}})) == "a:2,b:1");
  CHECK(error_of(inputs({{"LSB_JOBID", "7"}})) == "$LSB_MCPU_HOSTS is not set");
  CHECK(error_of(inputs({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "a 2 b"}})).find("pairs of host") !=
        std::string::npos);

  const std::string pe = "a 2 main.q@a <NULL>\nb 1 main.q@b UNDEFINED\na 1 other.q@a UNDEFINED\n";
  CHECK(hosts_of(inputs({{"PE_HOSTFILE", "/pe"}, {"JOB_ID", "3"}}, {{"/pe", pe}})) == "a:3,b:1");
  CHECK(error_of(inputs({{"PE_HOSTFILE", "/pe"}})).find("$PE_HOSTFILE: opening /pe") == 0);
  CHECK(error_of(inputs({{"PE_HOSTFILE", "/pe"}}, {{"/pe", "\n"}})).find("names no host") !=
        std::string::npos);
  CHECK(error_of(inputs({{"PE_HOSTFILE", "/pe"}}, {{"/pe", "a\n"}})).find("pairs") !=
        std::string::npos);

  const Texts pbs{{"PBS_JOBID", "9.server"}, {"PBS_NODEFILE", "/n"}};
  CHECK(hosts_of(inputs(pbs, {{"/n", "a.x\na.x\nb.x\n"}})) == "a.x:2,b.x:1");
  CHECK(find(inputs(pbs, {{"/n", "a"}}))->starter.empty());
  CHECK(error_of(inputs(pbs, {{"/n", ""}})) == "$PBS_NODEFILE names no host");
  CHECK(error_of(inputs(pbs, {{"/n", "-oProxyCommand=x"}})).find("$PBS_NODEFILE") == 0);

  const Texts mpijob{{"I_MPI_HYDRA_HOST_FILE", "/etc/mpi/hostfile"}};
  CHECK(hosts_of(inputs(mpijob, {{"/etc/mpi/hostfile", "w-0.job.ns.svc:2\nw-1.job.ns.svc:2\n"}})) ==
        "w-0.job.ns.svc:2,w-1.job.ns.svc:2");
  CHECK(hosts_of(inputs(mpijob, {{"/etc/mpi/hostfile", "w-0 slots=4\nw-1\n"}})) == "w-0:4,w-1:1");
  CHECK(hosts_of(inputs({{"MPI_HOST", "a.b,c.b,a.b"}, {"VK_TASK_INDEX", "0"}})) == "a.b:2,c.b:1");
}

TEST_CASE("engines: a long list of hosts is cut") {
  Allocation many;
  for (int i = 0; i < 100; ++i) many.hosts.push_back(Host{"n" + std::to_string(i), "", 2});
  CHECK(allocation_text(*find_engine("pbs"), many, "ssh") ==
        "PBS, Torque: 200 slots on 100 hosts (n0:2,n1:2,n2:2,n3:2,n4:2,n5:2,n6:2,n7:2,...); agents "
        "start by ssh");
}

// scripts/accept writes the table.
TEST_CASE("the reference of engines has the table of the registry", "[accept]") {
  test::expect_in_page("reference/engines.md", engine_reference());
}

TEST_CASE("engines: one step for all hosts") {
  const auto found = find(inputs({{"SLURM_JOB_ID", "1"},
                                  {"SLURM_JOB_NODELIST", "n[1-2]"},
                                  {"SLURM_NTASKS", "4"},
                                  {"SLURM_LABELIO", "1"},
                                  {"SLURM_TASKS_PER_NODE", "2(x2)"}}),
                          {"--mem=0"});
  REQUIRE(found);
  REQUIRE(found->step);
  const auto& words = found->step->start;
  const auto has = [&words](std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  // The user's additions come after ours, and so win.
  CHECK(std::find(words.begin(), words.end(), "--mem=0") >
        std::find(words.begin(), words.end(), "--input=all"));
  CHECK(words.back() == "--nodelist={hosts}");
  CHECK(has("SLURM_NTASKS"));  // after -u
  CHECK(has("SLURM_LABELIO"));
  // Nothing of the user's environment but what a shell needs crosses the network in the clear.
  CHECK(has("SLURM_EXPORT_ENV=HOME,PATH,USER,LOGNAME,TMPDIR,XDG_CACHE_HOME"));
  CHECK_FALSE(find(inputs({{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "a 1 b 1"}}))->step);
}

TEST_CASE("engines: the words by which Slurm ends a job") {
  const auto last_word = find_engine("slurm")->last_word;
  CHECK(last_word("srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
                  "slurmstepd-n1: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-31T12:00:00 ***\n"
                  "srun: error: n1: task 0: Terminated\n") ==
        "STEP 12.0 ON n1 CANCELLED AT 2026-01-31T12:00:00");
  // The line with the reason beats the one without.
  CHECK(last_word(
            "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-31T12:00:00 ***\n"
            "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-31T12:00:00 DUE TO TIME "
            "LIMIT ***\n") == "JOB 12 ON n1 CANCELLED AT 2026-01-31T12:00:00 DUE TO TIME LIMIT");
  CHECK(last_word("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-31T12:00:00 DUE TO "
                  "PREEMPTION ***") ==
        "JOB 7 ON n1 CANCELLED AT 2026-01-31T12:00:00 DUE TO PREEMPTION");
  CHECK(last_word(
            "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-31T12:00:00 DUE TO NODE "
            "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n")
            .ends_with("DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"));
  CHECK(last_word("srun: error: Node failure on n2\n").empty());
  CHECK(last_word("srun: error: n2: task 1: Exited with exit code 7\n").empty());
  CHECK(last_word("CANCELLED AT the theatre\n").empty());
  CHECK(last_word("").empty());
}

TEST_CASE("engines: Slurm's word of a job that had ended before") {
  const auto last_word = find_engine("slurm")->last_word;
  const std::string expired = "srun: error: Slurm job 1 has expired\n";
  const std::string cancelled =
      "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-01-31T12:00:00 ***\n";
  CHECK(last_word("srun: x\n" + expired) == "Slurm job 1 has expired");
  CHECK(last_word(cancelled + expired).find("JOB 1 ON n1 CANCELLED AT") == 0);
  const std::string unknown = "Unable to confirm allocation for job 9: Invalid job id specified";
  CHECK(last_word("srun: error: " + unknown) == unknown);
}

TEST_CASE("engines: what they answer of a job") {
  const auto verdict = [](const char* engine, const char* job, int exit_code, const char* text) {
    return find_engine(engine)->verdict(job, {exit_code, text});
  };
  const std::string head =
      "job-ID  prior   name       user         state submit/start at     queue          slots\n"
      "---------------------------------------------------------------------------------------\n";
  const auto qstat = [&](const std::string& lines) {
    return verdict("sge", "31", 0, (head + lines).c_str());
  };
  CHECK(qstat("     31 0.50000 train it   root         r     11/25/2026 15:45:41 all.q@n2  4\n")
            .empty());
  CHECK(qstat("     31 0.50000 train d    root         dr    11/25/2026 15:45:41 all.q@n2  4\n") ==
        "job 31 is being deleted (state dr)");
  CHECK(qstat("    311 0.50000 train      root         dr    11/25/2026 15:45:41 all.q@n2  4\n") ==
        "job 31 is not in the list of qstat any more");
  CHECK(verdict("sge", "31", 0, "") == "job 31 is not in the list of qstat any more");
  CHECK(verdict("sge", "31", 1, "error: commlib error: got select error").empty());

  CHECK(verdict("lsf", "7", 0, "RUN  -\n").empty());
  CHECK(verdict("lsf", "7", 0, "USUSP -\n").empty());
  CHECK(verdict("lsf", "7", 0,
                "EXIT  TERM_RUNLIMIT: job killed after reaching LSF run time limit\n") ==
        "job 7 is EXIT: TERM_RUNLIMIT: job killed after reaching LSF run time limit");
  CHECK(verdict("lsf", "7", 0, "PEND -\n") == "job 7 is PEND");
  CHECK(verdict("lsf", "7", 255, "Job <7> is not found\n").empty());
  CHECK(verdict("lsf", "7", 0, "").empty());

  CHECK(verdict("pbs", "9.s", 0, "Job Id: 9.s\n    job_state = R\n    comment = Job run at noon\n")
            .empty());
  CHECK(verdict("pbs", "9.s", 0, "Job Id: 9.s\n    job_state = S\n").empty());
  CHECK(verdict("pbs", "9.s", 0,
                "Job Id: 9.s\n    job_state = E\n    comment = Job run at noon and\n\tfailed\n") ==
        "job 9.s has state E: Job run at noon and");
  CHECK(verdict("pbs", "9.s", 0, "Job Id: 9.s\n    job_state = Q\n") == "job 9.s has state Q");
  CHECK(verdict("pbs", "9.s", 153, "qstat: Unknown Job Id 9.s\n") == "qstat: Unknown Job Id 9.s");
  CHECK(verdict("pbs", "9.s", 1, "qstat: cannot connect to server s (errno=111)\n").empty());
}

TEST_CASE("engines: jsrun is LSF without the launch node") {
  const Texts job{{"LSB_JOBID", "7"}, {"LSB_DJOB_HOSTFILE", "/f"}, {"HOME", "/home/me"}};
  const Texts files{{"/f", "batch1\nh1n1\nh1n1\nh1n2\nh1n2\n"}};
  CHECK(engine_here(inputs(job, files))->name == "lsf");
  const auto here = inputs(job, files, {"jsrun"});
  CHECK(engine_here(here)->name == "jsrun");
  const auto found = find(here, {"--immediate"});
  REQUIRE(found);
  CHECK(format_host_list(found->hosts) == "h1n1:2,h1n2:2");
  REQUIRE(found->step);
  CHECK(found->step->folder == "/home/me/.cache/hora");
  CHECK(found->step->start.back() == "--immediate");
  CHECK(found->starter.front() == "blaunch");
  CHECK(std::count(found->starter.begin(), found->starter.end(), "--immediate") == 0);
  CHECK(found->question.front() == "bjobs");
  // Where the script runs on a node of the job, that node is one of its hosts.
  CHECK(hosts_of(inputs(job, {{"/f", "a\na\nb\nb\n"}}, {"jsrun"})) == "a:2,b:2");
  CHECK(hosts_of(inputs(job, {{"/f", "a\nb\n"}}, {"jsrun"})) == "a:1,b:1");
  CHECK(error_of(inputs({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "a 1 b 2"}}, {}, {"jsrun"}))
            .find("$HOME") == 0);
}

TEST_CASE("engines: PBS starts agents by what it has") {
  const Texts job{{"PBS_JOBID", "9.s"}, {"PBS_NODEFILE", "/n"}, {"HOME", "/home/me"}};
  const Texts files{{"/n", "a\nb\n"}};
  const auto start_of = [&](std::vector<std::string> programs) {
    const auto found = find(inputs(job, files, std::move(programs)), {"-v"});
    REQUIRE(found);
    return found->step ? found->step->name + ": " + found->step->start[2] : "";
  };
  CHECK(start_of({}).empty());
  CHECK(start_of({"pbsdsh", "pbs_tmrsh"}).find("pbs_tmrsh -v \"$h\" ") != std::string::npos);
  CHECK(start_of({"pbsdsh"}).find("pbsdsh -v -h \"$h\" ") != std::string::npos);
  CHECK(find(inputs(job, files, {"pbsdsh"}))->starter.front() == "ssh");
  // Without a home folder there is nothing that hosts could share.
  CHECK_FALSE(
      find(inputs({{"PBS_JOBID", "9.s"}, {"PBS_NODEFILE", "/n"}}, files, {"pbsdsh"}))->step);
}

}  // namespace
}  // namespace hora::launcher
