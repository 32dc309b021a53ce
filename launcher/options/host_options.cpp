// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/host_options.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/options/engine_options.h"
#include "launcher/options/other_launchers.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/selection.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kMapping = "rankfile:";

bool is_mapping(const OptionValues& values) {
  return values.text("--map-by").starts_with(kMapping);
}

// Open MPI writes its qualifiers in capitals and in small letters.
Result<std::string> path_of(const OptionValues& values) {
  if (!is_mapping(values)) return values.text("--rankfile");
  constexpr std::string_view kKey = "file=";
  const std::string text = values.text("--map-by");
  const std::string_view rest = std::string_view(text).substr(kMapping.size());
  if (rest.size() == kKey.size() || !equals_ignoring_case(rest.substr(0, kKey.size()), kKey)) {
    return usage("--map-by: expected rankfile:file=FILE, found " + quote(text));
  }
  return std::string(rest.substr(kKey.size()));
}

// Each of these says where ranks run, too, or changes which ranks there are.
Status check_rivals(const OptionValues& values, const JobSpec& job) {
  if (job.elastic) return usage("--rankfile cannot be used with elastic jobs");
  if (job.by_mpirun) {
    return usage(
        "--rankfile cannot be used with --mpi; --mpi-args '--rankfile FILE' is for mpirun");
  }
  if (job.listen) {
    return usage("--rankfile cannot be used with --listen: which hosts come is not known before");
  }
  const bool maps = is_mapping(values);
  for (const char* option : {maps ? "--rankfile" : "--map-by", "--nproc-per-node", "--bind"}) {
    if (values.has(option)) {
      return usage(std::string(option) + " cannot be used with " +
                   (maps ? "--map-by rankfile" : "--rankfile") + ", which places each rank");
    }
  }
  return Ok{};
}

}  // namespace

bool has_rankfile(const OptionValues& values) {
  return values.has("--rankfile") || is_mapping(values);
}

Status read_rankfile(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  if (!has_rankfile(values)) return Ok{};
  // Before the file is read: a contradiction does not depend on its contents.
  HORA_TRY(check_rivals(values, job));
  const auto path = path_of(values);
  if (!path) return path.error();
  const auto text = inputs.read_file(*path);
  if (!text) return usage("--rankfile: " + text.error().message);
  const auto lines = parse_rankfile(*text, *path);
  if (!lines) return lines.error();
  return seat_ranks(*lines, *path, job);
}

namespace {

constexpr std::string_view kDevices = "CUDA_VISIBLE_DEVICES";

// The user's value would replace ours, which is what the option is about.
bool sets_devices(const std::vector<EnvironmentVariable>& variables) {
  return std::any_of(variables.begin(), variables.end(),
                     [](const EnvironmentVariable& each) { return each.name == kDevices; });
}

}  // namespace

Status read_host_filter(const OptionValues& values, JobSpec& job) {
  const bool includes = values.has("--include");
  if (!includes && !values.has("--exclude")) return Ok{};
  const char* const option = includes ? "--include" : "--exclude";
  // A list that leaves out a host which never comes would have no effect, unnoticed.
  for (const char* other : {"--host-discovery-script", "--listen"}) {
    if (values.has(other)) {
      return usage(std::string(option) + " cannot be used with " + other +
                   ": which hosts there are is not known before");
    }
  }
  auto terms = parse_host_terms(values.joined(option, "@"), option);
  if (!terms) return std::move(terms).error();
  // --include localhost:0,2 needs no -H.
  const bool is_here = job.hosts.empty();
  if (is_here) job.hosts = {Host{"localhost", "", {}}};
  const auto slots = parse_int<int>(values.text("--slots-per-host"));
  auto hosts =
      includes ? include_hosts(job.hosts, *terms, slots) : exclude_hosts(job.hosts, *terms, slots);
  if (!hosts) return std::move(hosts).error();
  job.hosts = std::move(*hosts);
  // The whole of this machine is what a job without hosts has, with as many slots as it needs.
  if (is_here && job.hosts.front().gpus.empty()) job.hosts.clear();
  return Ok{};
}

Status check_host_filter(const JobSpec& job) {
  const bool has_gpus = std::any_of(job.hosts.begin(), job.hosts.end(),
                                    [](const Host& host) { return !host.gpus.empty(); });
  if (!has_gpus) return Ok{};
  constexpr std::string_view kWhat = "GPUs of --include or --exclude cannot be used with ";
  // Slots of elastic jobs come and go; which GPU is whose is not settled once for all. mpirun gives
  // its ranks one environment on all hosts.
  if (job.elastic) return usage(std::string(kWhat) + "elastic jobs");
  if (job.by_mpirun) return usage(std::string(kWhat) + "--mpi");
  bool sets = sets_devices(job.variables);
  for (const Program& program : job.programs) sets = sets || sets_devices(program.variables);
  if (sets) return usage(std::string(kWhat) + "-x " + std::string(kDevices) + ", which they set");
  return Ok{};
}

// What torchrun, mpirun and Hydra say by host becomes slots, so that planning knows one kind of
// limit. A contradiction (more ranks than the slots that a host was given) is an error: whichever
// number won, half of the users would be surprised.

namespace {

void read_slots(const OptionValues& values, JobSpec& job) {
  job.num_proc = values.count("-np").value_or(0);
  const std::string slots = values.text("--slots-per-host");
  job.slots_per_host_auto = slots == "auto";
  job.slots_per_host = parse_int<int>(slots);
}

// --nnodes: the first N hosts that may be used.
Status read_host_count(const OptionValues& values, JobSpec& job) {
  if (!values.has("--nnodes")) return Ok{};
  const std::string text = values.text("--nnodes");
  if (text.find(':') != std::string::npos) {
    return usage("--nnodes: expected one number of hosts, found " + quote(text) +
                 "; a job that may shrink and grow has --min-np and --max-np, in ranks");
  }
  const auto count = parse_int<int>(text);
  if (!count || *count < 1) {
    return usage("--nnodes: expected a number of hosts, 1 or more, found " + quote(text));
  }
  if (values.has("--host-discovery-script")) {
    return usage("--nnodes cannot be used with --host-discovery-script, whose hosts come and go");
  }
  // A host with 0 slots is listed and not used: it does not count as one of the N.
  auto& hosts = job.hosts;
  hosts.erase(
      std::remove_if(hosts.begin(), hosts.end(), [](const Host& h) { return h.slots == 0; }),
      hosts.end());
  // No hosts at all are this machine.
  const int offered = std::max<int>(static_cast<int>(hosts.size()), 1);
  if (*count > offered) {
    return usage("--nnodes " + text + " asks for " + text + " hosts, but there " +
                 (offered == 1 ? "is 1" : "are " + std::to_string(offered)) +
                 (hosts.empty() ? " (this machine); give hosts with -H or --hostfile" : ""));
  }
  if (!hosts.empty()) hosts.resize(static_cast<std::size_t>(*count));
  return Ok{};
}

// "srun -N 2 -n 4" are 4 ranks on 2 hosts.
Status check_nodes_of_srun(const OptionValues& values, const std::string& text,
                           const JobSpec& job) {
  std::int64_t offered = 0;
  for (const Host& host : job.hosts) offered += host.slots.value_or(0);
  if (job.num_proc <= offered || is_elastic(values) || job.hosts.empty()) return Ok{};
  return usage("-np " + std::to_string(job.num_proc) +
               " asks for more ranks than --nproc-per-node " + text + " gives " +
               counted(job.hosts.size(), "host") +
               " (-N is ranks per host; srun's -N is --nnodes)");
}

// --nproc-per-node: each host gets that many ranks, and has to have as many slots if it has a
// number.
Status read_ranks_per_host(const OptionValues& values, JobSpec& job) {
  if (!values.has("--nproc-per-node")) return Ok{};
  const std::string text = values.text("--nproc-per-node");
  const auto count = parse_int<int>(text);
  // torchrun calls it "gpu".
  const bool is_auto = text == "auto" || text == "gpu";
  if (!is_auto && (!count || *count < 1 || *count > kMaxSlotsPerHost)) {
    return usage("--nproc-per-node: expected a number of ranks from 1 to " +
                 std::to_string(kMaxSlotsPerHost) + ", or auto, found " + quote(text));
  }
  if (is_auto) {
    job.slots_per_host_auto = true;
    if (job.hosts.empty()) job.hosts = {Host{"localhost", "", {}}};
    return Ok{};
  }
  // Hosts that a discovery script will name have no slots yet; they get as many.
  job.slots_per_host = *count;
  if (job.hosts.empty() && !is_elastic(values)) job.hosts = {Host{"localhost", "", {}}};
  for (Host& host : job.hosts) {
    if (host.slots.value_or(*count) == 0) continue;  // listed, but not used
    if (host.slots.value_or(*count) < *count) {
      return usage("--nproc-per-node " + text + ": host " + host.name + " has " +
                   counted(*host.slots, "slot"));
    }
    host.slots = *count;
  }
  return check_nodes_of_srun(values, text, job);
}

// Pods that are to be made have ranks without a word.
Status check_there_are_ranks(const OptionValues& values, const ProcessInputs& inputs,
                             const JobSpec& job) {
  if (values.verb() == kVerbKubernetes) return Ok{};
  // A rankfile has both, and a file of programs has its number.
  const bool has_ranks = has_rankfile(values) || is_elastic(values) || values.has("--programs") ||
                         values.has("--multi-prog");
  if (job.num_proc > 0 || !job.hosts.empty() || has_ranks) return Ok{};
  const bool is_program = !values.has("--module") && !values.has("--smoke");
  const std::string answer = is_program ? answer_to_first_word(job.command, inputs) : "";
  if (!answer.empty()) return usage(answer);
  return usage(
      std::string(
          "-np is missing; give the number of ranks, or hosts with slots, such as -H a:2,b:2") +
      (is_program ? note_on_absence(job.command, inputs) : ""));
}

}  // namespace

Status read_slot_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  read_slots(values, job);
  HORA_TRY(read_host_count(values, job));
  HORA_TRY(read_ranks_per_host(values, job));
  return check_there_are_ranks(values, inputs, job);
}

namespace {

// "any", "any:4711", "10.0.0.1", "10.0.0.1:4711", "[fe80::1]:4711"
Result<ListenSpec> parse_door(const std::string& text) {
  const Error wrong = usage(
      "--listen: expected ADDRESS, ADDRESS:PORT, any or any:PORT, with a "
      "numeric address of this machine, found " +
      quote(text));
  ListenSpec listen;
  if (parse_ip_address(text)) {
    listen.address = text;
    return listen;
  }
  if (text == "any") return listen;
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong;
  const auto port = parse_port(text.substr(colon + 1), /*zero_allowed=*/true);
  if (!port) return wrong;
  listen.port = *port;
  if (text.substr(0, colon) == "any") return listen;
  std::string address = text.substr(0, colon);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
  }
  if (!parse_ip_address(address)) return wrong;
  listen.address = address;
  return listen;
}

// No transport of the registry: main() brings it, with the machines that have dialled. A host that
// is this machine is reached by its connection, too, since that is whose user may run there.
Status dial_in(JobSpec& job) {
  job.transport = "dial";
  job.local_directly = false;
  return Ok{};
}

}  // namespace

// Refused here, before a user walks from machine to machine for a job that cannot start.
Status read_listen_options(const OptionValues& values, JobSpec& job) {
  const bool on_platform = job.listen.has_value();  // read_platform()
  if (!values.has("--listen") && !on_platform) return Ok{};
  // Each of them says that horarun reaches the hosts, or that they are known before they join.
  for (const std::string_view other :
       {"--rsh", "--transport", "--engine", "--jsrun", "--host-discovery-script", "--min-np",
        "--mpi", "--nnodes", "--nproc-per-node", "--rankfile", "--restarts", "--dry-run",
        "--check-hosts", "--include", "--exclude", "--end-with", "--detach"}) {
    // A platform's nodes are known; and which of them would end with the process?
    const bool is_fine = on_platform
                             ? other == "--nproc-per-node" && parse_int<int>(values.text(other))
                             : other == "--end-with" || other == "--detach";
    if (!values.has(other) || is_fine) continue;
    return usage(std::string(other) + " cannot be used " +
                 (on_platform
                      ? "where a platform runs this command on several nodes; --engine none "
                        "gives each node a job of its own"
                      : "with --listen"));
  }
  for (const std::string_view other :
       {"--ship", "--ship-env", "--output-filename", "--pmi", "--stdin"}) {
    if (!job.listen || !job.listen->own_commands || !values.has(other)) continue;
    return usage(std::string(other) +
                 " cannot be used where the nodes share no secret, and each runs its own command: "
                 "give all of them the same HORA_JOIN_TOKEN (openssl rand -hex 16 prints one)");
  }
  if (on_platform) {
    job.listen->timeout =
        parse_duration(values.text("--start-timeout")).value_or(job.listen->timeout);
    return dial_in(job);
  }
  if (values.has("--json") && !values.has("--listen-file")) {
    return usage("--listen with --json needs --listen-file FILE: the line to type is not an event");
  }
  auto listen = parse_door(values.text("--listen"));
  if (!listen) return std::move(listen).error();
  listen->file = values.text("--listen-file");
  listen->timeout = parse_duration(values.text("--start-timeout")).value_or(listen->timeout);
  if (job.hosts.empty() && !values.has("-np")) {
    return usage("--listen needs -np N, or the hosts to wait for: -H a,b");
  }
  for (const Host& host : job.hosts) {
    if (host.user.empty() && !host.port) continue;
    return usage("--listen: " + format_host(host) + " names a " +
                 (host.port ? "port; no machine is reached by ssh"
                            : "user; a machine runs the ranks as the user who types --join there"));
  }
  job.listen = std::move(*listen);
  return dial_in(job);
}

}  // namespace hora::launcher
