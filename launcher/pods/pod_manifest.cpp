// SPDX-License-Identifier: Apache-2.0
#include "launcher/pods/pod_manifest.h"

#include <algorithm>
#include <string_view>

namespace hora::launcher {

// A manifest is made as JSON, which is valid YAML; people read it before they let it into a
// cluster, so it is printed as they would write it, with the script in lines instead of one long
// string.

namespace {

using Json = nlohmann::ordered_json;

// Words such as "true" or "1e3" would not be read as strings. A word of letters that begins with a
// capital, or holds a blank or a slash, is none of them; everything else is put in quotes.
bool is_plain(std::string_view text) {
  if (text.empty()) return false;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto is_fine = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '/' || c == '.';
  };
  if (!is_letter(text.front()) || !std::all_of(text.begin(), text.end(), is_fine)) return false;
  for (const std::string_view word :
       {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}) {
    if (text.size() == word.size() && std::equal(text.begin(), text.end(), word.begin(),
                                                 [](char a, char b) { return (a | 0x20) == b; })) {
      return false;
    }
  }
  return true;
}

void write(std::string& out, const Json& value, std::size_t indent);

// JSON's quotes and escapes are YAML's, too.
std::string scalar(const Json& value) {
  if (value.is_string() && is_plain(value.get_ref<const std::string&>())) return value;
  return value.dump();
}

// Lines as they are, which is what makes a script readable.
void write_block(std::string& out, std::string_view text, std::size_t indent) {
  out += "|\n";
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    out += std::string(indent, ' ') + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

bool is_block(const Json& value) {
  return value.is_string() && value.get_ref<const std::string&>().ends_with('\n');
}

// After "key:" or "-".
void write_value(std::string& out, const Json& value, std::size_t indent, bool in_list) {
  if (is_block(value)) {
    out += " ";
    return write_block(out, value.get_ref<const std::string&>(), indent);
  }
  if (!value.is_structured() || value.empty()) {
    out += " " + scalar(value) + "\n";
    return;
  }
  if (!in_list) {
    out += "\n";
    return write(out, value, indent);
  }
  // The first line of the value follows the dash.
  std::string nested;
  write(nested, value, indent);
  out += " " + nested.substr(indent);
}

// Keys and dashes stand `indent` blanks in; what belongs to them, two more.
void write(std::string& out, const Json& value, std::size_t indent) {
  const std::string blanks(indent, ' ');
  for (const auto& [key, each] : value.items()) {
    out += blanks + (value.is_array() ? "-" : (is_plain(key) ? key : Json(key).dump()) + ":");
    write_value(out, each, indent + 2, value.is_array());
  }
}

}  // namespace

std::string yaml_text(const Json& value) {
  std::string out;
  write(out, value, 0);
  return out;
}

namespace {

// The pod's own process. It lives as long as there are others: agents and ranks are started by
// `kubectl exec`, so they are not its children, but they are in its process namespace. It needs no
// messages, and no program but sleep. SIGTERM (the pod is evicted or deleted) goes on to all of
// them.
constexpr std::string_view kKeeper =
    R"(# horarun reaches this pod by kubectl exec. The pod ends when nothing else than this script runs: never
# for $1 seconds after the start, or no longer for $2.
trap 'kill -s TERM -- -1 2>/dev/null; ending=1' TERM
idle=0 limit=$1 ending=0
while [ $idle -lt $limit ]; do
  sleep 1 & pause=$!
  wait $pause
  busy=0
  for process in /proc/[0-9]*; do
    case ${process#/proc/} in 1|$$|$pause) continue ;; esac
    { read -r state <$process/stat; } 2>/dev/null || continue
    case $state in *') Z '*) ;; *) busy=1 ;; esac
  done
  [ $ending$busy != 10 ] || exit 143
  idle=$((idle + 1))
  [ $busy = 0 ] || { idle=0 limit=$2; }
done
echo 'no horarun works in this pod any more' >/dev/termination-log
exit 1
)";

// Its command is the keeper's, whatever the image would run; programs come by kubectl exec.
Json container(const PodsSpec& pods, std::chrono::seconds timeout, std::chrono::seconds idle) {
  Json worker{{"name", kWorkerContainer},
              {"image", pods.image},
              {"command", {"sh", "-c", kKeeper, "sh"}},
              {"args", {std::to_string(timeout.count()), std::to_string(idle.count())}}};
  Json limits = Json::object();
  if (!pods.cpus.empty()) limits["cpu"] = pods.cpus;
  if (!pods.memory.empty()) limits["memory"] = pods.memory;
  if (pods.gpus > 0) limits[pods.gpu_resource] = pods.gpus;
  // Requests that are not given are the limits.
  if (!limits.empty()) worker["resources"] = {{"limits", limits}};
  worker["volumeMounts"] = Json::array({{{"name", "shm"}, {"mountPath", "/dev/shm"}}});
  return worker;
}

// Ranks need no rights in the cluster, and no variables that name its services.
Json pod(const PodsSpec& pods, std::chrono::seconds timeout, std::chrono::seconds idle) {
  Json shm{{"medium", "Memory"}};
  if (!pods.shm.empty()) shm["sizeLimit"] = pods.shm;
  return {{"restartPolicy", "Never"},
          {"automountServiceAccountToken", false},
          {"enableServiceLinks", false},
          {"containers", Json::array({container(pods, timeout, idle)})},
          {"volumes", Json::array({{{"name", "shm"}, {"emptyDir", shm}}})}};
}

}  // namespace

// Until all pods run, the Job has a time limit, so that pods which are not awaited any more are not
// made for ever; horarun lifts it then. A pod that is lost is not replaced: the ranks in it are
// lost, too. The default /dev/shm of a container has 64 MB, too little for NCCL and for ours.
std::string pod_manifest(const JobSpec& spec) {
  const PodsSpec& pods = *spec.pods;
  const auto timeout = std::chrono::ceil<std::chrono::seconds>(pods.timeout);
  auto idle = kIdleLimit;
  if (spec.restart) idle += std::chrono::ceil<std::chrono::seconds>(spec.restart->delay);
  const Json labels{{"app.kubernetes.io/managed-by", "horarun"}};
  const Json annotations{{"cluster-autoscaler.kubernetes.io/safe-to-evict", "false"},
                         {"sidecar.istio.io/inject", "false"}};
  const Json job{{"apiVersion", "batch/v1"},
                 {"kind", "Job"},
                 {"metadata", {{"generateName", "hora-"}, {"labels", labels}}},
                 {"spec",
                  {{"completions", pods.workers},
                   {"parallelism", pods.workers},
                   {"backoffLimit", 0},
                   {"activeDeadlineSeconds", (timeout + kIdleLimit).count()},
                   {"ttlSecondsAfterFinished", kFinishedJobStays.count()},
                   {"template",
                    {{"metadata", {{"labels", labels}, {"annotations", annotations}}},
                     {"spec", pod(pods, timeout + kIdleLimit, idle)}}}}}};
  return yaml_text(job);
}

}  // namespace hora::launcher
