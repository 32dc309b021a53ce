// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <map>

#include "launcher/platforms/platform.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"
#include "tests/support/generated_page.h"

namespace hora::launcher {
namespace {

using Texts = std::map<std::string, std::string, std::less<>>;

EngineInputs inputs(const Texts& variables, const Texts& files = {}) {
  return {[variables](std::string_view name) -> std::optional<std::string> {
            const auto found = variables.find(name);
            if (found == variables.end()) return std::nullopt;
            return found->second;
          },
          [files](const std::string& path) -> Result<std::string> {
            const auto found = files.find(path);
            if (found == files.end()) return errno_error(ENOENT, "opening " + path);
            return found->second;
          },
          [](std::string_view) { return false; },
          [](const std::vector<std::string>&) { return std::optional<std::string>(); },
          [variables] {
            std::vector<std::string> names;
            for (const auto& [name, value] : variables) names.push_back(name);
            return names;
          }};
}

// "SkyPilot 1/2 a,b head=a port=1 slots=8,8 job=j"; "-": nothing is found.
std::string found(const Texts& variables, const Texts& files = {}) {
  const auto result = platform_here(inputs(variables, files));
  if (!result) return result.error().message;
  const auto& here = *result;
  if (!here) return "-";
  const PlatformNodes& nodes = here->nodes;
  std::vector<std::string> slots;
  for (const int each : nodes.slots) slots.push_back(std::to_string(each));
  return std::string(here->platform->title) + " " +
         (nodes.index ? std::to_string(*nodes.index) : "?") + "/" + std::to_string(nodes.count) +
         (nodes.names.empty() ? "" : " " + join(nodes.names, ",")) +
         (nodes.head.empty() ? "" : " head=" + nodes.head) +
         (nodes.port == 0 ? "" : " port=" + std::to_string(nodes.port)) +
         (slots.empty() ? "" : " slots=" + join(slots, ",")) +
         (nodes.job.empty() ? "" : " job=" + nodes.job) +
         (nodes.key_file.empty() ? "" : " key=" + nodes.key_file);
}

Texts with(Texts base, const Texts& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

TEST_CASE("platforms: SkyPilot, before the Slurm below it") {
  const Texts sky{{"SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2\n"},
                  {"SKYPILOT_NODE_RANK", "1"},
                  {"SKYPILOT_NUM_NODES", "2"},
                  {"SKYPILOT_NUM_GPUS_PER_NODE", "8"},
                  {"SKYPILOT_TASK_ID", "sky-t_1"}};
  CHECK(found(with(sky, {{"HOME", "/root"}})) ==
        "SkyPilot 1/2 10.0.0.1,10.0.0.2 head=10.0.0.1 slots=8,8 job=sky-t_1 "
        "key=/root/.ssh/sky-cluster-key");
  CHECK(found(with(sky, {{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1-2]"}})) == found(sky));
  CHECK(found(with(sky, {{"SKYPILOT_NUM_GPUS_PER_NODE", "0"}})).find(" slots=1,1") !=
        std::string::npos);
  CHECK(found(with(sky, {{"SKYPILOT_NODE_IPS", "10.0.0.1"}})) == "-");
  // A place that is none: several nodes they are all the same.
  CHECK(found(with(sky, {{"SKYPILOT_NODE_RANK", "2"}})).starts_with("SkyPilot ?/2 "));
}

TEST_CASE("platforms: SageMaker") {
  const std::string path = "/opt/ml/input/config/resourceconfig.json";
  const std::string two =
      R"({"current_host":"algo-2","hosts":["algo-1","algo-2"],"network_interface_name":"eth0"})";
  CHECK(found({}, {{path, two}}) == "SageMaker 1/2 algo-1,algo-2 head=algo-1");
  CHECK(found({{"SM_NUM_GPUS", "8"}}, {{path, two}}).ends_with(" slots=8,8"));
  CHECK(found({{"SM_NUM_GPUS", "0"}}, {{path, two}}).ends_with(" head=algo-1"));
  // mpirun of the toolkit has started this.
  CHECK(found({{"OMPI_COMM_WORLD_RANK", "0"}}, {{path, two}}) == "-");
  for (const char* other : {R"({"current_host":"algo-1","hosts":["algo-1"]})", "[]", "{}",
                            R"({"hosts":"algo-1"})", R"({"hosts":[1,2]})"}) {
    INFO(other);
    CHECK(found({}, {{path, other}}) == "-");
  }
  CHECK(found({}, {{path, "{"}}).starts_with(path + " is not JSON"));
}

TEST_CASE("platforms: Azure ML") {
  const Texts azure{{"AZUREML_NODE_COUNT", "2"},
                    {"AZ_BATCH_HOST_LIST", "10.0.0.4,10.0.0.5"},
                    {"AZ_BATCH_MASTER_NODE", "10.0.0.4:6105"},
                    {"NODE_RANK", "1"}};
  CHECK(found(azure) == "Azure ML 1/2 10.0.0.4,10.0.0.5 head=10.0.0.4");
  CHECK(found(with(azure, {{"AZUREML_CR_NODE_RANK", "0"}})).starts_with("Azure ML 0/2"));
  CHECK(found(with(azure, {{"LOCAL_RANK", "0"}, {"WORLD_SIZE", "2"}})) == found(azure));
  // One process for each GPU: no node of its own.
  CHECK(found(with(azure, {{"LOCAL_RANK", "1"}})).starts_with("Azure ML ?/2"));
  CHECK(
      found(with(azure, {{"LOCAL_RANK", "0"}, {"WORLD_SIZE", "16"}})).starts_with("Azure ML ?/2"));
  CHECK(found(with(azure, {{"AZUREML_NODE_COUNT", "1"}})) == "-");
  CHECK(found(with(azure, {{"AZ_BATCH_HOST_LIST", ""}})) == "Azure ML 1/2 head=10.0.0.4");
}

TEST_CASE("platforms: Vertex AI") {
  const auto spec = [](const std::string& task) {
    return Texts{
        {"CLUSTER_SPEC", R"({"cluster":{"workerpool0":["cmle-training-workerpool0-0:2222"],)"
                         R"("workerpool1":["w1-0:2222","w1-1:2222"],"workerpool2":["ps-0:2222"]},)"
                         R"("task":)" +
                             task + "}"}};
  };
  const std::string names =
      "/3 cmle-training-workerpool0-0,w1-0,w1-1 head=cmle-training-workerpool0-0";
  CHECK(found(spec(R"({"type":"workerpool0","index":0})")) == "Vertex AI 0" + names);
  CHECK(found(spec(R"({"type":"workerpool1","index":1})")) == "Vertex AI 2" + names);
  CHECK(found(spec(R"({"type":"workerpool2","index":0})")) == "Vertex AI ?" + names);
  CHECK(found({{"CLUSTER_SPEC", R"({"cluster":{"workerpool0":["a:2222"]}})"}}) == "-");
  for (const char* other : {"", "1", "{}", R"({"cluster":1,"task":[]})"}) {
    INFO(other);
    CHECK(found({{"CLUSTER_SPEC", other}}) == "-");
  }
  CHECK(found({{"CLUSTER_SPEC", "x"}}) ==
        "$CLUSTER_SPEC is not JSON; on Vertex AI it names the nodes that run this command. "
        "--engine none ignores it");
}

TEST_CASE("platforms: Determined, whose nodes may have unequal slots") {
  const std::string path = "/run/determined/info/rendezvous.json";
  CHECK(found({}, {{path, R"({"container_addrs":["10.0.0.1","10.0.0.2"],"container_rank":1,)"
                          R"("container_slot_counts":[8,4]})"}}) ==
        "Determined 1/2 10.0.0.1,10.0.0.2 head=10.0.0.1 slots=8,4");
  CHECK(found({}, {{path, R"({"container_addrs":["10.0.0.1"],"container_rank":0})"}}) == "-");
  CHECK(found({}, {{path, R"({"container_addrs":7})"}}) == "-");
  CHECK(found({}, {{path, ""}}).starts_with(path + " is not JSON"));
}

TEST_CASE("platforms: AWS Batch, whose main node does not know its address") {
  const Texts aws{{"AWS_BATCH_JOB_NUM_NODES", "4"},
                  {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "0"},
                  {"AWS_BATCH_JOB_NODE_INDEX", "2"},
                  {"AWS_BATCH_JOB_ID", "abc#2"},
                  {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.1.7"}};
  CHECK(found(aws) == "AWS Batch 2/4 head=10.0.1.7 job=abc");
  const Texts second = with(aws, {{"AWS_BATCH_JOB_MAIN_NODE_INDEX", "2"}});
  CHECK(found(second).starts_with("AWS Batch 0/4"));
  CHECK(found(with(second, {{"AWS_BATCH_JOB_NODE_INDEX", "0"}})).starts_with("AWS Batch 1/4"));
  CHECK(found(with(second, {{"AWS_BATCH_JOB_NODE_INDEX", "3"}})).starts_with("AWS Batch 3/4"));
  CHECK(found(with(aws, {{"AWS_BATCH_JOB_NUM_NODES", "1"}})) == "-");
}

TEST_CASE("platforms: Google Cloud Batch, if its tasks know each other") {
  const Texts tasks{{"BATCH_HOSTS_FILE", "/hosts"},
                    {"BATCH_TASK_COUNT", "2"},
                    {"BATCH_TASK_INDEX", "1"},
                    {"BATCH_MAIN_NODE_HOSTNAME", "b-0"}};
  CHECK(found(tasks, {{"/hosts", "b-0\nb-1\n"}}) == "Google Cloud Batch 1/2 head=b-0");
  // Several tasks on a node.
  CHECK(found(with(tasks, {{"BATCH_TASK_COUNT", "4"}}), {{"/hosts", "b-0\nb-1\n"}})
            .starts_with("Google Cloud Batch ?/2"));
  CHECK(found(tasks, {{"/hosts", "b-0\n"}}) == "-");
  CHECK(found(tasks) == "Google Cloud Batch 1/2 head=b-0");  // not mounted in the container
  CHECK(found({{"BATCH_TASK_COUNT", "100"}, {"BATCH_TASK_INDEX", "7"}}) == "-");
}

TEST_CASE("platforms: Volcano's pods of one task") {
  const Texts pod{{"VC_TASK_INDEX", "0"},
                  {"VC_WORKER_HOSTS", "j-worker-0.j,j-worker-1.j"},
                  {"VC_WORKER_NUM", "2"}};
  CHECK(found(pod) == "Volcano 0/2 j-worker-0.j,j-worker-1.j head=j-worker-0.j");
  // Two tasks: those of this pod's.
  const Texts two = with(pod, {{"VC_MASTER_HOSTS", "j-master-0.j"}, {"HOSTNAME", "j-worker-1"}});
  CHECK(found(two).starts_with("Volcano 0/2 j-worker-0.j"));
  CHECK(found(with(two, {{"HOSTNAME", "j-master-0"}})) == "-");
  // The MPI plug-in's launcher.
  CHECK(found(with(pod, {{"MPI_HOST", "j-worker-0.j,j-worker-1.j"}})) == "-");
  // The ssh plug-in's files, and an image's own.
  const std::string config = "StrictHostKeyChecking no\nHost j-worker-0\n  HostName ";
  CHECK(found(pod, {{"/root/.ssh/config", config + "j-worker-0.j\n"}})
            .ends_with(" key=/root/.ssh/id_rsa"));
  CHECK_FALSE(found(pod, {{"/root/.ssh/config", config + "j-worker-0.jj\n"}}).ends_with("id_rsa"));
}

TEST_CASE("platforms: Kubeflow's variables for torchrun") {
  const Texts pod{{"PET_NNODES", "2"},
                  {"PET_NODE_RANK", "1"},
                  {"PET_MASTER_ADDR", "tj-node-0-0.tj"},
                  {"PET_MASTER_PORT", "29500"},
                  {"PET_NPROC_PER_NODE", "auto"}};
  CHECK(found(pod) == "Kubeflow 1/2 tj-node-0-0.tj,tj-node-0-1.tj head=tj-node-0-0.tj port=29500");
  CHECK(found(with(pod, {{"PET_NPROC_PER_NODE", "8"}})).ends_with(" slots=8,8"));
  CHECK(found(with(pod, {{"PET_MASTER_ADDR", "pj-master-0"}})) ==
        "Kubeflow 1/2 head=pj-master-0 port=29500");
  // torchrun's elastic form.
  CHECK(found(with(pod, {{"PET_NNODES", "1:4"}})).starts_with("Kubeflow ?/4"));
  CHECK(found(with(pod, {{"PET_NNODES", "1"}})) == "-");
  CHECK(found(with(pod, {{"PET_NNODES", "many"}})) == "-");
}

TEST_CASE("platforms: HTCondor and Lightning") {
  CHECK(found({{"_CONDOR_NPROCS", "4"}, {"_CONDOR_PROCNO", "0"}}) == "HTCondor 0/4");
  CHECK(found({{"_CONDOR_NPROCS", "1"}, {"_CONDOR_PROCNO", "0"}}) == "-");
  const Texts lightning{{"NUM_NODES", "2"}, {"NODE_RANK", "1"}, {"MASTER_ADDR", "10.0.0.1"}};
  CHECK(found(lightning) == "Lightning 1/2 head=10.0.0.1");
  CHECK(found(with(lightning, {{"SLURM_JOB_ID", "1"}})) == "-");
  CHECK(found({{"NUM_NODES", "2"}}) == "-");
}

TEST_CASE("platforms: PyTorchJob, and who else sets torch's variables") {
  const Texts pod{
      {"MASTER_ADDR", "pj-master-0"}, {"MASTER_PORT", "23456"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}};
  CHECK(found(pod) == "PyTorchJob 0/2 head=pj-master-0 port=23456");
  CHECK(found(with(pod, {{"NPROC_PER_NODE", "8"}})).ends_with(" slots=8,8"));
  CHECK(found(with(pod, {{"MASTER_ADDR", "localhost"}})) == "-");
  // The first pod of an older operator.
  CHECK(found(with(pod, {{"MASTER_ADDR", "localhost"}, {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}))
            .starts_with("PyTorchJob 0/2"));
  for (const Texts& other :
       std::vector<Texts>{{{"LOCAL_RANK", "0"}},           // a rank
                          {{"WORLD_SIZE", "1"}},           // one pod
                          {{"TORCHELASTIC_RUN_ID", "r"}},  // torchrun's
                          {{"HOROVOD_RANK", "0"}},         // ours
                          {{"SLURM_JOB_ID", "1"}},         // a job's script, which ranks will read
                          {{"MASTER_ADDR", ""}}}) {
    INFO(other.begin()->first);
    CHECK(found(with(pod, other)) == "-");
  }
}

TEST_CASE("platforms: engines that run the command once") {
  CHECK(found({}) == "-");
  CHECK(found({{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_NNODES", "2"}}) ==
        "-");
  CHECK(found({{"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"}}) == "-");
  CHECK(found({{"MPI_HOST", "a,b"}}) == "-");
}

// scripts/accept writes the table.
TEST_CASE("the page of platforms has the table of the registry", "[accept]") {
  test::expect_in_page("howto/platforms.md", platform_reference());
}

}  // namespace
}  // namespace hora::launcher
