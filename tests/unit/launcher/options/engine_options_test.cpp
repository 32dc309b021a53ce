// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/engine_options.h"

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("Options of elastic jobs") {
  CHECK(!job_of({"-np", "4", "x"}).elastic);
  const JobSpec least = job_of({"-np", "4", "--min-np", "2", "-H", "a:2,b:2", "x"});
  REQUIRE(least.elastic);
  CHECK(least.elastic->min_np == 2);
  CHECK(!least.elastic->max_np);
  CHECK(least.elastic->timeout == std::chrono::seconds(600));
  const JobSpec all =
      job_of({"--min-np", "2", "--max-num-proc", "8", "--host-discovery-script", "./d.sh",
              "--elastic-timeout", "30", "--reset-limit", "3", "--blacklist-cooldown-range", "5",
              "60", "--slots-per-host", "3", "x", "5"});
  REQUIRE(all.elastic);
  CHECK(all.num_proc == 2);
  CHECK(all.elastic->max_np == 8);
  CHECK(all.elastic->discovery_script == "./d.sh");
  CHECK(all.elastic->timeout == std::chrono::seconds(30));
  CHECK(all.elastic->reset_limit == 3);
  CHECK(all.elastic->cooldown_seconds == std::make_pair(5, 60));
  CHECK(all.slots_per_host == 3);
  CHECK(all.command == Words{"x", "5"});
  CHECK(job_of({"-np", "2", "--host-discovery-script", "d", "x"}).elastic->min_np == 2);
  CHECK(!job_of({"-np", "2", "--min-np", "1", "--mpi", "x"}).by_mpirun);

  CHECK(error_of({"-np", "2", "--min-np", "3", "x"}).find("--min-np 3 is more than -np 2") == 0);
  CHECK(error_of({"-np", "4", "--min-np", "1", "--max-np", "3", "x"}).find("--max-np 3 is less") ==
        0);
  CHECK(error_of({"--host-discovery-script", "d", "x"}).find("-np is missing") == 0);
  CHECK(error_of({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "9", "3", "x"})
            .find("the smaller one first") != std::string::npos);
  CHECK(error_of({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "9", "x"})
            .find("the smaller one first") != std::string::npos);
  CHECK(error_of({"-H", "a:2", "--host-discovery-script", "d", "-np", "2", "x"})
            .find("cannot be used together") != std::string::npos);
  CHECK(error_of({"-np", "2", "--min-np", "1", "--slots-per-host", "auto", "x"}).find("a number") !=
        std::string::npos);
}

TEST_CASE("Inside of an engine's allocation") {
  const Variables slurm{{"SLURM_JOB_ID", "4711"},
                        {"SLURM_JOB_NODELIST", "n[1-2]"},
                        {"SLURM_NTASKS", "3"},
                        {"SLURM_TASKS_PER_NODE", "2,1"}};
  const JobSpec job = job_of({"x"}, slurm);
  CHECK(format_host_list(job.hosts) == "n1:2,n2:1");
  CHECK(job.transport == "command");
  CHECK(!job.local_directly);  // the step contains the ranks, those of this machine too
  REQUIRE(job.engine);
  CHECK(job.engine->text == "Slurm job 4711: 3 slots on 2 hosts (n1:2,n2:1); agents start by srun");
  CHECK(job_of({"-np", "2", "x"}, slurm).hosts.size() == 2);

  // A user who names hosts gets these, in the usual way; --engine says that the engine starts
  // there.
  CHECK(!job_of({"-H", "a:2", "x"}, slurm).engine);
  CHECK(!job_of({"--hostfile", "hosts", "x"}, slurm).engine);
  CHECK(!job_of({"-np", "2", "--host-discovery-script", "d", "x"}, slurm).engine);
  const JobSpec some = job_of({"--engine", "slurm", "-H", "n2:1", "x"}, slurm);
  CHECK(format_host_list(some.hosts) == "n2:1");
  CHECK(some.transport == "command");
  CHECK(job_of({"-np", "2", "--engine", "none", "x"}, slurm).hosts.empty());
  CHECK(error_of({"--engine", "none", "x"}, slurm).find("-np is missing") == 0);
  CHECK(error_of({"--engine", "pbs", "x"}, slurm).find("--engine pbs: not inside") == 0);
  CHECK(error_of({"--engine", "noone", "x"}, slurm).find("--engine") != std::string::npos);

  const JobSpec by_ssh = job_of({"--transport", "ssh", "x"}, slurm);
  CHECK(by_ssh.rsh_command.empty());
  CHECK(by_ssh.engine->text.find("by ssh") != std::string::npos);
  CHECK(job_of({"--rsh", "r", "x"}, slurm).rsh_command == Words{"r"});
  CHECK(job_of({"--mpi", "x"}, slurm).rsh_command.empty());
  const JobSpec with_args = job_of({"--engine-args", "--mem=0 -v", "x"}, slurm);
  CHECK(std::count(with_args.rsh_command.begin(), with_args.rsh_command.end(), "--mem=0") == 1);

  CHECK(error_of({"x"}, {{"SLURM_JOB_ID", "1"}})
            .find("Slurm (--engine none ignores the allocation): $SLURM_JOB_NODELIST") == 0);
  const JobSpec pbs = job_of({"x"}, {{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "nodes"}});
  CHECK(format_host_list(pbs.hosts) == "a:2,b:1");
  CHECK(pbs.transport == "ssh");
}

TEST_CASE("Slots in an allocation that was asked for none") {
  Variables slurm{{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1-2]"}};
  CHECK(format_host_list(job_of({"x"}, slurm).hosts) == "n1:1,n2:1");
  const JobSpec four = job_of({"--slots-per-host", "4", "x"}, slurm);
  CHECK(format_host_list(four.hosts) == "n1:4,n2:4");
  CHECK(four.engine->text.find("8 slots on 2 hosts") != std::string::npos);
  CHECK(format_host_list(job_of({"--nproc-per-node", "3", "x"}, slurm).hosts) == "n1:3,n2:3");
  const JobSpec gpus = job_of({"--slots-per-host", "auto", "x"}, slurm);
  CHECK(format_host_list(gpus.hosts) == "n1,n2");
  CHECK(gpus.engine->text.find("Slurm job 1: 2 hosts (n1,n2)") == 0);
  slurm["SLURM_GPUS"] = "6";
  CHECK(error_of({"x"}, slurm).find("the allocation of Slurm: the job has 6 GPUs on 2 nodes") == 0);
  CHECK(format_host_list(job_of({"--slots-per-host", "3", "x"}, slurm).hosts) == "n1:3,n2:3");
  slurm["SLURM_NTASKS"] = "2";
  slurm["SLURM_TASKS_PER_NODE"] = "1(x2)";
  CHECK(format_host_list(job_of({"--slots-per-host", "4", "x"}, slurm).hosts) == "n1:4,n2:4");
}

TEST_CASE("What the user types wins over what the engine was asked for") {
  Variables slurm{{"SLURM_JOB_ID", "1"},
                  {"SLURM_JOB_NODELIST", "n[1-2]"},
                  {"SLURM_NTASKS", "2"},
                  {"SLURM_TASKS_PER_NODE", "1(x2)"}};
  const auto hosts = [&slurm](const Words& words) {
    return format_host_list(job_of(words, slurm).hosts);
  };
  CHECK(hosts({"x"}) == "n1:1,n2:1");
  CHECK(hosts({"--nproc-per-node", "2", "x"}) == "n1:2,n2:2");
  CHECK(hosts({"-np", "3", "x"}) == "n1:2,n2:2");
  CHECK(hosts({"--nnodes", "1", "-np", "3", "x"}) == "n1:3");
  CHECK(job_of({"-np", "4", "x"}, slurm).engine->text.find("4 slots on 2 hosts") !=
        std::string::npos);
  slurm["SLURM_TASKS_PER_NODE"] = "2(x2)";
  CHECK(
      error_of({"-np", "5", "x"}, slurm) ==
      "-np 5 asks for 5 ranks, but the allocation of Slurm has 4 slots on 2 hosts. Give each host "
      "more slots (--slots-per-host 3), or ask for fewer ranks.");
  CHECK(hosts({"-np", "5", "--slots-per-host", "3", "x"}) == "n1:3,n2:3");
  CHECK(hosts({"--nproc-per-node", "4", "x"}) == "n1:4,n2:4");
  // PBS lists a node once unless it is asked for mpiprocs.
  const JobSpec pbs =
      job_of({"-np", "4", "x"}, {{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "text:node\n"}});
  CHECK(pbs.hosts.size() == 1);
  CHECK(pbs.hosts.front().slots == 4);
}

TEST_CASE("An allocation whose only host is this machine needs no command of the engine") {
  Variables step{{"SLURM_JOB_ID", "1"},         {"SLURM_JOB_NODELIST", "n[1-2]"},
                 {"SLURM_NTASKS", "1"},         {"SLURM_TASKS_PER_NODE", "1"},
                 {"SLURM_STEP_NODELIST", "n2"}, {"SLURM_STEP_ID", "0"},
                 {"SLURMD_NODENAME", "n2"}};
  const JobSpec job = job_of({"-np", "2", "x"}, step);
  CHECK(job.rsh_command.empty());
  CHECK_FALSE(job.engine_step);
  CHECK(job.local_directly);
  CHECK(format_host_list(job.hosts) == "localhost:2");
  CHECK(job.engine->text == "Slurm job 1: 2 slots on 1 host (n2:2), on this machine");
  CHECK_FALSE(job_of({"--engine-args", "--mem=0", "x"}, step).rsh_command.empty());
  // No qrsh and no blaunch are in $PATH here.
  const Variables sge{{"PE_HOSTFILE", "text:a 2 main.q@a UNDEFINED\n"}};
  CHECK(format_host_list(job_of({"x"}, sge).hosts) == "localhost:2");
  CHECK(job_of({"x"}, sge).rsh_command.empty());
  const Variables lsf{{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "a 2"}};
  CHECK(format_host_list(job_of({"x"}, lsf).hosts) == "localhost:2");
  CHECK(error_of({"x"}, {{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "a 2 b 2"}}) ==
        "the allocation of LSF: $PATH has no blaunch; --transport ssh reaches its hosts by ssh");
}

TEST_CASE("An elastic job follows the engine unless the user has chosen hosts") {
  const Variables pod{{"HYDRA_HOST_FILE", "/etc/mpi/hostfile"}};
  const JobSpec job = job_of({"--min-np", "2", "--max-np", "8", "x"}, pod);
  REQUIRE(job.elastic);
  CHECK(job.elastic->follows_engine);
  CHECK(job.engine->text.find("; hosts come and go as /etc/mpi/discover_hosts.sh says") !=
        std::string::npos);
  CHECK_FALSE(job_of({"x"}, pod).elastic);
  CHECK(job_of({"x"}, pod).engine->text.find("come and go") == std::string::npos);
  for (const Words& chosen :
       {Words{"-H", "a:2", "--engine", "mpijob"}, Words{"--host-discovery-script", "d"},
        Words{"--include", "w-0"}, Words{"--nnodes", "1"}}) {
    Words words{"--min-np", "1"};
    words.insert(words.end(), chosen.begin(), chosen.end());
    words.push_back("x");
    INFO(chosen.front());
    CHECK_FALSE(job_of(words, pod).elastic->follows_engine);
  }
}

TEST_CASE("Hosts that an engine starts later are waited for") {
  const Variables volcano{{"MPI_HOST", "w-0,w-1"}, {"VC_TASK_INDEX", "0"}};
  const JobSpec job = job_of({"x"}, volcano);
  CHECK(job.hosts_come_late);
  CHECK(job.start_timeout.count() == 600'000);
  CHECK(job_of({"--start-timeout", "20", "x"}, volcano).start_timeout.count() == 20'000);
  Variables both = volcano;
  both["HOROVOD_START_TIMEOUT"] = "45";
  CHECK(job_of({"x"}, both).start_timeout.count() == 45'000);
  // A user who names hosts means existing ones.
  CHECK_FALSE(job_of({"-H", "a:2", "x"}, volcano).hosts_come_late);
  CHECK(job_of({"--engine", "volcano", "-H", "w-0:2", "x"}, volcano).hosts_come_late);
  CHECK_FALSE(job_of({"x"}, {{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "nodes"}}).hosts_come_late);
}

TEST_CASE("Nodes of a platform that cannot find each other are refused, with the lines that work") {
  const Variables sky{{"SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2"},
                      {"SKYPILOT_NODE_RANK", "2"},
                      {"SKYPILOT_NUM_GPUS_PER_NODE", "8"}};
  const std::string ssh = "\n  one job, typed on node 0 alone, over ssh: horarun ";
  const std::string without_ssh = "\n  one job, typed on node 0 alone, without ssh: horarun ";
  const std::string line = ", which prints the line for each node";
  const std::string alone = "\n  a job of its own on each node: horarun --engine none ";
  const std::string whole = "), and each would run the whole job: they cannot find each other";
  const std::string here = "SkyPilot runs this command on 2 nodes ($SKYPILOT_NODE_IPS" + whole;
  CHECK(error_of({"python3", "a.py"}, sky) == here + ssh + "-H 10.0.0.1:8,10.0.0.2:8 python3 a.py" +
                                                  without_ssh + "--listen any -np 16 python3 a.py" +
                                                  line + alone +
                                                  "--nproc-per-node auto python3 a.py");
  CHECK(error_of({"-np", "4", "--smoke"}, sky) == here + ssh + "-H 10.0.0.1:8,10.0.0.2:8 --smoke" +
                                                      without_ssh + "--listen any -np 4 --smoke" +
                                                      line + alone + "-np 4 --smoke");
  const Variables pods{{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}};
  CHECK(error_of({"x"}, pods) ==
        "Kubeflow runs this command on 2 nodes ($PET_NNODES; this is node 1" + whole + without_ssh +
            "--listen any -np 2 x" + line + alone + "--nproc-per-node auto x");
  // More than the engine below it, and than a number of ranks that is missing.
  Variables both = sky;
  both.insert({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1-2]"}});
  CHECK(error_of({"x"}, both).find("SkyPilot runs this command on 2 nodes") == 0);
  CHECK(error_of({"--engine", "slurm", "x"}, both).find("SkyPilot runs") == 0);
  for (const Words& chosen :
       {Words{"-H", "a:2"}, Words{"--engine", "none", "-np", "2"},
        Words{"--listen", "any", "-np", "2"}, Words{"--host-discovery-script", "d", "-np", "2"}}) {
    Words words = chosen;
    words.push_back("x");
    INFO(chosen.front());
    CHECK(job_of(words, sky).num_proc != 1);
  }
  Variables rank = sky;
  rank["HOROVOD_RANK"] = "0";
  CHECK(job_of({"-np", "2", "x"}, rank).num_proc == 2);
  Variables one = sky;
  one["SKYPILOT_NODE_IPS"] = "10.0.0.1";
  CHECK(job_of({"-np", "2", "x"}, one).num_proc == 2);
}

TEST_CASE("Nodes of a platform that share a secret are one job") {
  Variables pod{{"PET_NNODES", "2"},
                {"PET_NODE_RANK", "0"},
                {"PET_MASTER_ADDR", "tj-node-0-0.tj"},
                {"PET_MASTER_PORT", "29500"},
                {"HORA_JOIN_TOKEN", "0123456789abcdef0123456789abcdef"}};
  const auto first = parsed<Launch>({"-np", "3", "x"}, pod);
  REQUIRE(first.platform);
  CHECK(first.platform->is_first);
  CHECK(format_host_list(first.job.hosts) == "tj-node-0-0.tj:2,tj-node-0-1.tj:1");
  REQUIRE(first.job.listen);
  CHECK(first.job.listen->port == 29500);
  CHECK(first.job.transport == "dial");
  CHECK(first.job.num_proc == 3);
  CHECK(parsed<Smoke>({"--smoke"}, pod).platform);
  CHECK_FALSE(parsed<Launch>({"-H", "a:2", "x"}, pod).platform);

  Variables second = pod;
  second["PET_NODE_RANK"] = "1";
  const auto join = parsed<Join>({"-np", "3", "--start-timeout", "20", "x"}, second);
  REQUIRE(join.platform);
  CHECK_FALSE(join.platform->is_first);
  CHECK(join.platform->name == "tj-node-0-1.tj");
  CHECK(join.platform->head == "tj-node-0-0.tj");
  CHECK(join.platform->port == 29500);
  CHECK(join.platform->key == first.platform->key);
  CHECK(join.platform->key.size() == 32);
  CHECK(join.slots == 1);
  CHECK(join.timeout == std::chrono::seconds(20));
  CHECK_FALSE(parsed<Join>({"x"}, second).slots);  // its GPUs
  CHECK(parsed<Join>({"--nproc-per-node", "4", "x"}, second).slots == 4);

  Variables other = second;
  other["HORA_JOIN_TOKEN"][0] = 'f';
  CHECK(parsed<Join>({"x"}, other).platform->key != join.platform->key);
  other["HORA_JOIN_TOKEN"] = "short";
  CHECK(error_of({"x"}, other).find("$HORA_JOIN_TOKEN: fewer than 24 characters") == 0);
  other.erase("HORA_JOIN_TOKEN");
  other["HORA_JOIN_TOKEN_FILE"] = "text:0123456789abcdef0123456789abcdef";
  CHECK(parsed<Join>({"x"}, other).platform->key == join.platform->key);
  other["HORA_JOIN_TOKEN_FILE"] = "nowhere";
  CHECK(error_of({"x"}, other).find("$HORA_JOIN_TOKEN_FILE: ") == 0);
  // Both kinds of node refuse what one job cannot be.
  for (const Variables& each : {pod, second}) {
    CHECK(error_of({"-np", "1", "x"}, each).find("-np 1: Kubeflow runs this command on 2 nodes") ==
          0);
    CHECK(error_of({"--min-np", "2", "x"}, each).find("--min-np cannot be used where") == 0);
    CHECK(error_of({"--end-with", "1", "x"}, each).find("--end-with cannot be used where") == 0);
    CHECK(error_of({"--dry-run", "x"}, each).find("--dry-run cannot be used where") == 0);
  }
  CHECK(error_of({"x"}, {{"_CONDOR_NPROCS", "2"},
                         {"_CONDOR_PROCNO", "0"},
                         {"HORA_JOIN_TOKEN", "0123456789abcdef0123456789abcdef"}})
            .find("HTCondor runs this command on 2 nodes") == 0);
}

TEST_CASE("Nodes of a platform that share no secret run their own command") {
  Variables pod{{"PET_NNODES", "2"}, {"PET_NODE_RANK", "0"}, {"PET_MASTER_ADDR", "tj-node-0-0.tj"}};
  Variables second = pod;
  second["PET_NODE_RANK"] = "1";
  const auto first = parsed<Launch>({"-np", "3", "x"}, pod);
  const auto other = parsed<Launch>({"-np", "3", "x"}, second);
  for (const auto* node : {&first, &other}) {
    REQUIRE(node->platform);
    CHECK(node->job.listen->own_commands);
    REQUIRE(node->warnings.size() == 1);
    CHECK(node->warnings[0].find("Kubeflow's nodes share no secret (HORA_JOIN_TOKEN)") == 0);
  }
  CHECK(first.platform->is_first);
  CHECK(first.platform->slots == 2);
  CHECK_FALSE(other.platform->is_first);
  CHECK(other.platform->slots == 1);
  CHECK(other.platform->key == first.platform->key);
  CHECK(parsed<Smoke>({"--smoke"}, second).platform);
  pod["HORA_JOIN_TOKEN"] = "0123456789abcdef0123456789abcdef";
  CHECK_FALSE(parsed<Launch>({"x"}, pod).job.listen->own_commands);
  for (const Words& sends : {Words{"--ship", "f"}, Words{"--ship-env", "d"}, Words{"--pmi", "pmix"},
                             Words{"--output-filename", "d"}, Words{"--stdin", "all"}}) {
    Words words = sends;
    words.push_back("x");
    const std::string refusal = sends.front() + " cannot be used where the nodes share no secret";
    CHECK(error_of(words, second).find(refusal) == 0);
    CHECK(parsed<Launch>(words, pod).platform);
  }
}

TEST_CASE("Jobs in pods of their own") {
  const JobSpec job = job_of({"k8s", "--image", "python:3.12", "--workers", "4", "-np", "6",
                              "--namespace", "team", "--shm", "2Gi", "--kubectl", "k3s kubectl",
                              "--start-timeout", "30m", "python", "train.py"});
  REQUIRE(job.pods);
  CHECK(job.pods->image == "python:3.12");
  CHECK(job.pods->workers == 4);
  CHECK(job.pods->name_space == "team");
  CHECK(job.pods->shm == "2Gi");
  CHECK(job.pods->kubectl == Words{"k3s", "kubectl"});
  CHECK(job.pods->timeout == std::chrono::minutes(30));
  CHECK(job.command == Words{"python", "train.py"});
  CHECK_FALSE(job.local_directly);
  CHECK_FALSE(job_of({"-np", "1", "x"}).pods);
  // As many as the GPUs fill.
  CHECK(job_of({"k8s", "--image", "i", "--gpus-per-worker", "8", "-np", "20", "x"}).pods->workers ==
        3);

  // Several programs share the pods.
  CHECK(job_of({"k8s", "--image", "i", "--gpus-per-worker", "2", "-np", "2", "a", ":", "-np", "4",
                "b"})
            .pods->workers == 3);

  // Pods reach a launcher that is in one, too.
  const auto dials = [](const std::string& choice, const Variables& variables) {
    return job_of({"k8s", "--image", "i", "--workers", "1", "--dial", choice, "x"}, variables)
        .pods->dial;
  };
  const Variables in_a_pod{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}};
  CHECK_FALSE(job.pods->dial);
  CHECK_FALSE(dials("auto", {}));
  CHECK(dials("auto", in_a_pod));
  CHECK(dials("yes", {}));
  CHECK_FALSE(dials("no", in_a_pod));

  const Words image{"k8s", "--image", "i"};
  const auto wrong = [&](Words more) {
    more.insert(more.begin(), image.begin(), image.end());
    more.push_back("x");
    return error_of(more);
  };
  CHECK(wrong({"-np", "2"}) == "how many pods? expected --workers N");
  CHECK(wrong({"-np", "2", "--workers", "3"}) == "-np 2 leaves some of --workers 3 without a rank");
  CHECK(wrong({"--workers", "2", "--shm", "2GB"}) ==
        "--shm: expected a quantity of Kubernetes such as 4, 500m or 2Gi, found '2GB'");
  CHECK(error_of({"k8s", "--workers", "2", "x"}) ==
        "which image? expected --image IMAGE, or --manifest FILE");
  CHECK(error_of({"k8s", "--manifest", "f", "--shm", "2Gi", "x"}) ==
        "--shm cannot be used with --manifest: the manifest says it");
  CHECK(wrong({"--workers", "2", "-H", "a"}).find("unknown option '-H'") == 0);
  CHECK(error_of({"--workers", "2", "x"}) ==
        "unknown option '--workers' here; it belongs to 'horarun k8s'");
}

TEST_CASE("a job in pods starts in the container's folder, or in one that is named from there") {
  const auto folder_of = [](const Words& options) {
    Words words{"k8s", "--image", "i", "--workers", "1"};
    words.insert(words.end(), options.begin(), options.end());
    return job_of(words).working_directory;
  };
  CHECK(folder_of({"x"}) == "/proc/1/cwd");
  CHECK(folder_of({"--wdir", "src", "x"}) == "/proc/1/cwd/src");
  CHECK(folder_of({"--wdir", "/src", "x"}) == "/src");
}

}  // namespace
}  // namespace hora::launcher
