// SPDX-License-Identifier: Apache-2.0
#include "launcher/platforms/platform.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/engines/registry.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr const char* kSageMakerFile = "/opt/ml/input/config/resourceconfig.json";
constexpr const char* kDeterminedFile = "/run/determined/info/rendezvous.json";

const PlatformNodes kNoJson{.is_json = false};

nlohmann::json parsed(const std::string& text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// "" where it is absent.
std::string text_of(const EngineInputs& inputs, std::string_view name) {
  return inputs.variable(name).value_or("");
}

std::optional<int> number_of(const EngineInputs& inputs, std::string_view name) {
  return parse_int<int>(text_of(inputs, name));
}

std::uint16_t port_of(const EngineInputs& inputs, std::string_view name) {
  const auto port = parse_port(text_of(inputs, name));
  return port ? *port : std::uint16_t{0};
}

std::string without_port(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  const bool is_one = colon != std::string_view::npos && address.find(':') == colon;
  return std::string(is_one ? address.substr(0, colon) : address);
}

std::vector<std::string> names_in(std::string_view list) { return words_of(list, " ,\t\r\n"); }

// --- one function for each platform --------------------------------------------------------------

// SkyPilot: `run:` of a task with num_nodes, on VMs, in pods and in allocations of Slurm, whose
// variables each node has as well.
std::optional<PlatformNodes> sky_pilot(const EngineInputs& inputs) {
  PlatformNodes found;
  found.names = names_in(text_of(inputs, "SKYPILOT_NODE_IPS"));
  found.count = static_cast<int>(found.names.size());
  found.index = number_of(inputs, "SKYPILOT_NODE_RANK");
  if (!found.index) return std::nullopt;
  // 0: a node without GPUs.
  const auto gpus = number_of(inputs, "SKYPILOT_NUM_GPUS_PER_NODE");
  found.slots = slots_on_each(gpus == 0 ? 1 : gpus, found.count);
  found.job = text_of(inputs, "SKYPILOT_TASK_ID");
  found.key_file = text_of(inputs, "HOME") + "/.ssh/sky-cluster-key";
  return found;
}

// SageMaker's training jobs without a distribution of its toolkit: a file in each container. Its
// `algo-2` is what other containers call this one; its host name may be another.
std::optional<PlatformNodes> sage_maker(const EngineInputs& inputs) {
  const auto text = inputs.read_file(kSageMakerFile);
  if (!text) return std::nullopt;
  const auto config = parsed(*text);
  if (config.is_discarded()) return kNoJson;
  if (!config.is_object() || !config.contains("hosts") || !config["hosts"].is_array()) {
    return std::nullopt;
  }
  PlatformNodes found;
  const auto current = config.value("current_host", nlohmann::json());
  for (const auto& host : config["hosts"]) {
    if (!host.is_string()) return std::nullopt;
    if (host == current) found.index = static_cast<int>(found.names.size());
    found.names.push_back(host.get<std::string>());
  }
  found.count = static_cast<int>(found.names.size());
  found.slots = slots_on_each(number_of(inputs, "SM_NUM_GPUS"), found.count);
  found.job = text_of(inputs, "TRAINING_JOB_NAME");
  return found;
}

// Azure ML with one process on each node. With one for each GPU they are ranks, not nodes.
std::optional<PlatformNodes> azure_ml(const EngineInputs& inputs) {
  PlatformNodes found;
  found.count = number_of(inputs, "AZUREML_NODE_COUNT").value_or(1);
  found.index = number_of(inputs, "AZUREML_CR_NODE_RANK");
  if (!found.index) found.index = number_of(inputs, "NODE_RANK");
  const bool is_rank = number_of(inputs, "LOCAL_RANK").value_or(0) > 0 ||
                       number_of(inputs, "WORLD_SIZE").value_or(0) > found.count;
  if (is_rank) found.index.reset();
  found.names = names_in(text_of(inputs, "AZ_BATCH_HOST_LIST"));
  found.head = without_port(text_of(inputs, "AZ_BATCH_MASTER_NODE"));
  if (found.head.empty()) found.head = text_of(inputs, "MASTER_ADDR");
  found.job = text_of(inputs, "AZUREML_RUN_ID");
  return found;
}

// Vertex AI's custom jobs. Pool 0 has one node, pool 1 the others; pools 2 and 3 are for servers
// and evaluators, with commands of their own.
std::optional<PlatformNodes> vertex_ai(const EngineInputs& inputs) {
  const std::string text = text_of(inputs, "CLUSTER_SPEC");
  const auto spec = parsed(text);
  if (spec.is_discarded() && !text.empty()) return kNoJson;
  if (!spec.is_object()) return std::nullopt;
  const auto part = [](const nlohmann::json& of, const char* name) {
    return of.is_object() && of.contains(name) ? of[name] : nlohmann::json();
  };
  const auto task = part(spec, "task");
  const auto place = part(task, "index");
  PlatformNodes found;
  for (const char* const pool : {"workerpool0", "workerpool1"}) {
    if (part(task, "type") == pool && place.is_number_integer()) {
      found.index = place.get<int>() + static_cast<int>(found.names.size());
    }
    const auto nodes = part(part(spec, "cluster"), pool);
    for (const auto& node : nodes.is_array() ? nodes : nlohmann::json::array()) {
      // The port is not one of ssh.
      if (node.is_string()) found.names.push_back(without_port(node.get<std::string>()));
    }
  }
  found.count = static_cast<int>(found.names.size());
  found.job = text_of(inputs, "CLOUD_ML_JOB_ID");
  return found;
}

// Determined, with a launcher of the user's own. Its launch.horovod runs horovodrun -H on one
// node.
std::optional<PlatformNodes> determined(const EngineInputs& inputs) {
  const auto text = inputs.read_file(kDeterminedFile);
  if (!text) return std::nullopt;
  const auto info = parsed(*text);
  if (info.is_discarded()) return kNoJson;
  if (!info.is_object()) return std::nullopt;
  PlatformNodes found;
  for (const auto& address : info.value("container_addrs", nlohmann::json::array())) {
    if (address.is_string()) found.names.push_back(address.get<std::string>());
  }
  for (const auto& slots : info.value("container_slot_counts", nlohmann::json::array())) {
    // 0: a task without GPUs.
    if (slots.is_number_integer())
      found.slots.push_back(std::clamp(slots.get<int>(), 1, kMaxSlotsPerHost));
  }
  const auto rank = info.value("container_rank", nlohmann::json());
  if (rank.is_number_integer()) found.index = rank.get<int>();
  found.count = static_cast<int>(found.names.size());
  found.job = text_of(inputs, "DET_TASK_ID");
  return found;
}

// Multi-node jobs of AWS Batch. The main node does not know its own address.
std::optional<PlatformNodes> aws_batch(const EngineInputs& inputs) {
  PlatformNodes found;
  found.count = number_of(inputs, "AWS_BATCH_JOB_NUM_NODES").value_or(1);
  found.index = number_of(inputs, "AWS_BATCH_JOB_NODE_INDEX");
  // The main node comes first, whichever it is.
  const int main = number_of(inputs, "AWS_BATCH_JOB_MAIN_NODE_INDEX").value_or(0);
  if (found.index == main) {
    found.index = 0;
  } else if (found.index && *found.index < main) {
    ++*found.index;
  }
  found.head = text_of(inputs, "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS");
  const std::string job = text_of(inputs, "AWS_BATCH_JOB_ID");
  found.job = job.substr(0, job.find('#'));  // "#1" is this node's part
  return found;
}

// Batch of Google Cloud. Without a file of hosts (requireHostsFile) tasks are independent of each
// other.
std::optional<PlatformNodes> gcp_batch(const EngineInputs& inputs) {
  const std::string path = text_of(inputs, "BATCH_HOSTS_FILE");
  const auto text = path.empty() ? Result<std::string>(std::string()) : inputs.read_file(path);
  PlatformNodes found;
  // Their order is not documented, so these names say nothing about a node's index. A container may
  // not see the file.
  found.count = text ? static_cast<int>(names_in(*text).size())
                     : number_of(inputs, "BATCH_TASK_COUNT").value_or(1);
  if (number_of(inputs, "BATCH_TASK_COUNT").value_or(found.count) == found.count) {
    found.index = number_of(inputs, "BATCH_TASK_INDEX");
  }
  found.head = text_of(inputs, "BATCH_MAIN_NODE_HOSTNAME");
  found.job = text_of(inputs, "BATCH_JOB_UID");
  return found;
}

// Of Volcano's only task, or of that to which this pod belongs.
std::vector<std::string> task_of(const EngineInputs& inputs) {
  std::vector<std::vector<std::string>> tasks;
  for (const std::string& name : inputs.variable_names()) {
    if (name.starts_with("VC_") && name.ends_with("_HOSTS")) {
      tasks.push_back(names_in(text_of(inputs, name)));
    }
  }
  if (tasks.size() == 1) return tasks.front();
  const std::string pod = text_of(inputs, "HOSTNAME");
  for (auto& task : tasks) {
    for (const std::string& name : task) {
      if (!pod.empty() && name.substr(0, name.find('.')) == pod) return std::move(task);
    }
  }
  return {};
}

// Of Volcano's ssh plug-in, which makes a key for each job. An image may have one there that others
// know, but not the plug-in's list of the job's pods.
bool has_key(const EngineInputs& inputs, const std::vector<std::string>& pods) {
  const auto config = inputs.read_file("/root/.ssh/config");
  return config && !pods.empty() && config->find("HostName " + pods[0] + "\n") != std::string::npos;
}

// Volcano's svc plug-in: the pods of a task have each other's names. Other tasks of the job may run
// other commands. Its MPI plug-in is an engine: the command runs in one pod.
std::optional<PlatformNodes> volcano(const EngineInputs& inputs) {
  if (!inputs.variable_names || !text_of(inputs, "MPI_HOST").empty()) return std::nullopt;
  PlatformNodes found;
  found.index = number_of(inputs, "VC_TASK_INDEX");
  if (!found.index) found.index = number_of(inputs, "VK_TASK_INDEX");
  if (!found.index) return std::nullopt;
  found.names = task_of(inputs);
  found.count = static_cast<int>(found.names.size());
  if (has_key(inputs, found.names)) found.key_file = "/root/.ssh/id_rsa";
  return found;
}

// "tj-node-0-0.tj" is the first of two: "tj-node-0-1.tj" is the other. PyTorchJobs name one alone.
std::vector<std::string> names_like(const std::string& head, int count) {
  constexpr std::string_view kFirstNode = "-node-0-0.";
  const std::size_t at = head.find(kFirstNode);
  std::vector<std::string> names;
  if (at == std::string::npos || count > kMaxHosts) return names;
  for (int i = 0; i < count; ++i) {
    names.push_back(head.substr(0, at) + "-node-0-" + std::to_string(i) + "." +
                    head.substr(at + kFirstNode.size()));
  }
  return names;
}

// Kubeflow: TrainJobs of PyTorch (Trainer v2), and PyTorchJobs with a number of processes, give
// torchrun its node by its own variables.
std::optional<PlatformNodes> kubeflow(const EngineInputs& inputs) {
  PlatformNodes found;
  const std::string nodes = text_of(inputs, "PET_NNODES");
  // "1:4" is torchrun's elastic form: how many there are now is not known.
  const std::size_t colon = nodes.find(':');
  found.count =
      parse_int<int>(nodes.substr(colon == std::string::npos ? 0 : colon + 1)).value_or(1);
  if (colon == std::string::npos) found.index = number_of(inputs, "PET_NODE_RANK");
  found.head = text_of(inputs, "PET_MASTER_ADDR");
  found.names = names_like(found.head, found.count);
  found.port = port_of(inputs, "PET_MASTER_PORT");
  found.slots = slots_on_each(number_of(inputs, "PET_NPROC_PER_NODE"), found.count);
  return found;
}

// HTCondor's parallel universe.
std::optional<PlatformNodes> ht_condor(const EngineInputs& inputs) {
  PlatformNodes found;
  found.count = number_of(inputs, "_CONDOR_NPROCS").value_or(1);
  found.index = number_of(inputs, "_CONDOR_PROCNO");
  return found;
}

// Lightning's multi-machine jobs.
std::optional<PlatformNodes> lightning(const EngineInputs& inputs) {
  PlatformNodes found;
  found.count = number_of(inputs, "NUM_NODES").value_or(1);
  found.index = number_of(inputs, "NODE_RANK");
  found.head = text_of(inputs, "MASTER_ADDR");
  if (!found.index || found.head.empty()) return std::nullopt;
  return found;
}

// A user of one machine sets the same variables. In a pod the master may be called localhost by
// itself.
bool is_elsewhere(const EngineInputs& inputs, const std::string& head) {
  return !head.empty() && (!(head == "localhost" || head.starts_with("127.") || head == "::1") ||
                           inputs.variable("KUBERNETES_SERVICE_HOST"));
}

// PyTorchJobs without a number of processes, Run:ai and PAI DLC: torch's variables, of which these
// count pods.
std::optional<PlatformNodes> pytorch_job(const EngineInputs& inputs) {
  PlatformNodes found;
  found.head = text_of(inputs, "MASTER_ADDR");
  found.count = number_of(inputs, "WORLD_SIZE").value_or(1);
  found.index = number_of(inputs, "RANK");
  // A launcher that starts ranks gives them a place on their node.
  if (!found.index || inputs.variable("LOCAL_RANK") || !is_elsewhere(inputs, found.head)) {
    return std::nullopt;
  }
  found.port = port_of(inputs, "MASTER_PORT");
  found.slots = slots_on_each(number_of(inputs, "NPROC_PER_NODE"), found.count);
  return found;
}

// The first that is here counts.
constexpr PlatformDescriptor kPlatforms[] = {
    {.title = "SkyPilot",
     .mark = "$SKYPILOT_NODE_IPS",
     .order = "its lines; `$SKYPILOT_NUM_GPUS_PER_NODE`, or 1",
     .find = sky_pilot},
    {.title = "SageMaker",
     .mark = kSageMakerFile,
     .order = "its `hosts`; `$SM_NUM_GPUS`, else GPUs",
     .find = sage_maker},
    {.title = "Azure ML",
     .mark = "$AZUREML_NODE_COUNT",
     .order = "`$AZUREML_CR_NODE_RANK` or `$NODE_RANK`, `$AZ_BATCH_HOST_LIST`; GPUs",
     .find = azure_ml},
    {.title = "Vertex AI",
     .mark = "$CLUSTER_SPEC",
     .order = "`workerpool0`, then `workerpool1`; GPUs",
     .find = vertex_ai},
    {.title = "Determined",
     .mark = kDeterminedFile,
     .order = "its `container_addrs`, `container_slot_counts`",
     .find = determined},
    {.title = "AWS Batch",
     .mark = "$AWS_BATCH_JOB_NUM_NODES",
     .order = "`$AWS_BATCH_JOB_NODE_INDEX`, the main node first; GPUs",
     .find = aws_batch},
    {.title = "Google Cloud Batch",
     .mark = "$BATCH_HOSTS_FILE",
     .order = "`$BATCH_TASK_INDEX`; GPUs",
     .find = gcp_batch},
    {.title = "Volcano",
     .mark = "$VC_TASK_INDEX",
     .order = "`$VC_TASK_HOSTS` of the pod's task; GPUs",
     .find = volcano},
    {.title = "Kubeflow",
     .mark = "$PET_NNODES",
     .order = "`$PET_NODE_RANK`; `$PET_NPROC_PER_NODE` if it is a number, else GPUs",
     .find = kubeflow},
    {.title = "HTCondor",
     .mark = "$_CONDOR_NPROCS",
     .order = "`$_CONDOR_PROCNO`; GPUs",
     .find = ht_condor,
     .finds_head = false},
    {.title = "Lightning",
     .mark = "$NUM_NODES",
     .order = "`$NODE_RANK`; GPUs",
     .find = lightning,
     .yields_to_engines = true},
    {.title = "PyTorchJob",
     .mark = "$WORLD_SIZE",
     .order = "`$RANK`; `$NPROC_PER_NODE`, else GPUs",
     .find = pytorch_job,
     .yields_to_engines = true},
};

// A rank inherits the variables of its node, and adds those of its launcher.
constexpr std::string_view kRankMarks[] = {"HOROVOD_RANK", "TORCHELASTIC_RUN_ID",
                                           "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

// What contradicts itself is not used; that there are several nodes remains true.
void check(PlatformNodes& nodes) {
  const auto count = static_cast<std::size_t>(nodes.count);
  if (nodes.names.size() != count) nodes.names.clear();
  if (nodes.slots.size() != count) nodes.slots.clear();
  if (nodes.index && (*nodes.index < 0 || *nodes.index >= nodes.count)) nodes.index.reset();
  if (nodes.head.empty() && !nodes.names.empty()) nodes.head = nodes.names.front();
}

}  // namespace

std::vector<int> slots_on_each(std::optional<int> slots, int count) {
  if (!slots || *slots < 1 || *slots > kMaxSlotsPerHost || count < 1) return {};
  return std::vector<int>(static_cast<std::size_t>(count), *slots);
}

Result<std::optional<PlatformHere>> platform_here(const EngineInputs& inputs) {
  for (const std::string_view mark : kRankMarks) {
    if (inputs.variable(mark)) return std::optional<PlatformHere>();
  }
  for (const PlatformDescriptor& each : kPlatforms) {
    if (each.yields_to_engines && engine_here(inputs) != nullptr) continue;
    auto nodes = each.find(inputs);
    if (nodes && !nodes->is_json) {
      return make_error(ErrorCode::kUsage,
                        std::string(each.mark) + " is not JSON; on " + std::string(each.title) +
                            " it names the nodes that run this command. --engine none ignores it");
    }
    if (!nodes || nodes->count < 2) continue;
    check(*nodes);
    return std::optional(PlatformHere{&each, *std::move(nodes)});
  }
  return std::optional<PlatformHere>();
}

std::string platform_reference() {
  std::string out = "| platform | found by | order of the nodes, slots |\n|---|---|---|\n";
  for (const PlatformDescriptor& each : kPlatforms) {
    out += "| " + std::string(each.title) + " | `" + std::string(each.mark) + "` | " +
           std::string(each.order) + " |\n";
  }
  return out;
}

}  // namespace hora::launcher
