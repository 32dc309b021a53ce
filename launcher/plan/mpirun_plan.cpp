// SPDX-License-Identifier: Apache-2.0
// Translates a job into the command line of mpirun. Each flavour has its own options; what a
// flavour cannot do is an error before anything starts, never silently ignored.
#include "launcher/plan/mpirun_plan.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "launcher/plan/rank_count.h"
#include "launcher/text/shell_words.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using Words = std::vector<std::string>;

// The smallest IPv4 network that has all of the addresses; empty where it would be so large that
// it says nothing.
std::string common_network(const Words& addresses) {
  constexpr int kLeastPrefix = 8;
  std::optional<Cidr> network;
  for (const std::string& text : addresses) {
    const auto address = parse_ip_address(text);
    if (!address || address->v6) return "";
    if (!network) network = Cidr{*address, address->bit_count()};
    while (network->prefix_length > 0 && !network->contains(*address)) --network->prefix_length;
  }
  if (!network || network->prefix_length < kLeastPrefix) return "";
  for (int bit = network->prefix_length; bit < network->address.bit_count(); ++bit) {
    network->address.bytes[static_cast<std::size_t>(bit / 8)] &=
        static_cast<std::uint8_t>(~(0x80u >> (bit % 8)));
  }
  return format_cidr(*network);
}

// From this many hosts on, Open MPI's tree of ssh connections is slower than opening all of them
// from here.
constexpr std::size_t kManyHosts = 64;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Open MPI and Spectrum MPI share the ORTE launcher and its options; the others use Hydra.
bool is_orte(MpiFlavour flavour) {
  return flavour == MpiFlavour::kOpenMpi || flavour == MpiFlavour::kSpectrum;
}

class Planner {
 public:
  Planner(const JobSpec& spec, const std::vector<Host>& hosts, MpiFlavour flavour,
          const HostFindings& findings, const EnvironmentList& environment)
      : spec_(spec),
        hosts_(hosts),
        flavour_(flavour),
        findings_(findings),
        environment_(environment) {}

  Result<Words> run() {
    HORA_TRY(refuse_the_impossible());
    add({"mpirun"});
    add_basics();
    const std::int64_t ranks = spec_.num_proc > 0 ? spec_.num_proc : count_slots(hosts_);
    HORA_TRY(check_rank_count(ranks));
    add({"-np", std::to_string(ranks)});
    HORA_TRY(add_hosts());
    HORA_TRY(add_binding());
    add_network_stack();
    add_ssh();
    HORA_TRY(add_interfaces());
    add_output();
    add_environment();
    HORA_TRY(add_words("--mpi-args", spec_.mpi_args));
    add(spec_.command);
    return std::move(words_);
  }

 private:
  void add(const Words& words) { words_.insert(words_.end(), words.begin(), words.end()); }

  // Users write these options as they would in a shell.
  Status add_words(std::string_view option, const std::string& text) {
    auto words = split_shell_words(text);
    if (!words) return std::move(words).error().with_context(option);
    add(*words);
    return Ok{};
  }

  Error not_with_this(const std::string& what) const {
    return usage(what + " is not supported with --mpi and " +
                 std::string(mpi_flavour_name(flavour_)));
  }

  // mpirun moves no files, prints no events and reads no user names.
  Status refuse_the_impossible() const {
    if (!spec_.ship_files.empty()) return usage("--ship is not supported with --mpi");
    if (!spec_.ship_environment.empty()) return usage("--ship-env is not supported with --mpi");
    if (spec_.json) return usage("--json is not supported with --mpi");
    if (spec_.shown_ranks) return usage("--show-ranks is not supported with --mpi");
    if (spec_.merge_stderr && !is_orte(flavour_)) return not_with_this("--merge-stderr");
    for (const Host& host : hosts_) {
      if (!host.user.empty()) {
        return usage("-H: " + quote(format_host(host)) +
                     ": mpirun does not accept a user name; set it in ~/.ssh/config");
      }
    }
    if (spec_.stdin_policy == StdinPolicy::kNone && !is_orte(flavour_)) {
      return not_with_this("--stdin none");
    }
    if (spec_.prefix_timestamp && !is_orte(flavour_)) {
      return not_with_this("--prefix-output-with-timestamp");
    }
    if (!spec_.binding_args.empty() && flavour_ == MpiFlavour::kIntel) {
      return not_with_this("--binding-args");
    }
    return Ok{};
  }

  void add_basics() {
    if (is_orte(flavour_)) {
      // mpirun refuses root by default, and containers often run as root.
      add({"--allow-run-as-root"});
      if (spec_.prefix_output) add({"--tag-output"});
      if (spec_.prefix_timestamp) add({"--timestamp-output"});
      if (spec_.merge_stderr) add({"--merge-stderr-to-stdout"});
      if (spec_.stdin_policy == StdinPolicy::kNone) add({"--stdin", "none"});
      if (spec_.stdin_policy == StdinPolicy::kAll) add({"--stdin", "all"});
      if (spec_.timeout) {
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(*spec_.timeout);
        add({"--timeout", std::to_string(seconds.count())});
      }
    } else {
      if (spec_.prefix_output) add({"-l"});
      if (spec_.stdin_policy == StdinPolicy::kAll) add({"-s", "all"});
    }
  }

  Status add_hosts() {
    if (is_orte(flavour_)) {
      // ORTE takes slots per host; Hydra takes one number for all.
      add({"-H", format_host_list(hosts_)});
      return Ok{};
    }
    Words names;
    for (const Host& host : hosts_) {
      if (host.slots != hosts_.front().slots) {
        return usage("-H: " + std::string(mpi_flavour_name(flavour_)) +
                     " needs the same number of slots on every host, found " +
                     format_host(hosts_.front()) + " and " + format_host(host));
      }
      names.push_back(host.name);
    }
    add({"-ppn", std::to_string(hosts_.front().slots.value_or(1)), "-hosts", join(names, ",")});
    return Ok{};
  }

  // Unbound by default, because training processes have many threads, and mpirun would put each
  // rank on one core.
  Status add_binding() {
    if (!spec_.binding_args.empty()) return add_words("--binding-args", spec_.binding_args);
    switch (flavour_) {
      case MpiFlavour::kOpenMpi:
      case MpiFlavour::kMpich:
        add({"-bind-to", "none", "-map-by", "slot"});
        break;
      case MpiFlavour::kSpectrum:
        add({"-bind-to", "socket", "-map-by", "socket", "-rank-by", "core"});
        break;
      case MpiFlavour::kIntel:
        break;
    }
    return Ok{};
  }

  // NCCL_IB_DISABLE=1 says that the user wants TCP.
  bool wants_tcp() const {
    return std::any_of(spec_.knobs.begin(), spec_.knobs.end(), [](const auto& knob) {
      return knob.name == "NCCL_IB_DISABLE" && knob.value == "1";
    });
  }

  void add_network_stack() {
    // Forces TCP for MPI's own messages, since Open MPI's RDMA does not cope with processes that
    // fork, as data loaders do.
    if (flavour_ == MpiFlavour::kOpenMpi) add({"-mca", "pml", "ob1", "-mca", "btl", "^openib"});
    if (flavour_ == MpiFlavour::kSpectrum && wants_tcp()) add({"-tcp"});
    // All connections at once, each directly from here.
    if (is_orte(flavour_) && hosts_.size() >= kManyHosts) {
      add({"-mca", "plm_rsh_no_tree_spawn", "true", "-mca", "plm_rsh_num_concurrent",
           std::to_string(hosts_.size())});
    }
  }

  void add_ssh() {
    Words arguments;
    if (spec_.ssh.port) arguments.insert(arguments.end(), {"-p", std::to_string(*spec_.ssh.port)});
    const auto option = [&arguments](const std::string& name, const std::string& value) {
      if (!value.empty()) arguments.insert(arguments.end(), {name, value});
    };
    option("-i", spec_.ssh.identity_file);
    option("-F", spec_.ssh.config_file);
    if (spec_.ssh.accept_new_host_keys) option("-o", "StrictHostKeyChecking=accept-new");
    const std::string text = join(arguments, " ");
    if (is_orte(flavour_)) {
      if (!text.empty()) add({"-mca", "plm_rsh_args", text});
      if (!spec_.rsh_command.empty()) {
        add({"-mca", "plm_rsh_agent", join(spec_.rsh_command, " ")});
      }
      return;
    }
    if (!text.empty()) add({"-bootstrap=ssh", "-bootstrap-exec-args", text});
    if (!spec_.rsh_command.empty()) add({"-bootstrap-exec", join(spec_.rsh_command, " ")});
  }

  // The user's choice, else the interfaces that were found to connect the hosts.
  Status add_interfaces() {
    const Words& chosen =
        spec_.network_interfaces.empty() ? findings_.interfaces : spec_.network_interfaces;
    const std::string list = join(chosen, ",");
    if (is_orte(flavour_)) {
      // A name that a host does not have makes Open MPI 4 overlook the others there.
      const bool differ = spec_.network_interfaces.empty() && chosen.size() > 1;
      const std::string network = differ ? common_network(findings_.addresses) : "";
      if (!list.empty()) add({"-mca", "btl_tcp_if_include", network.empty() ? list : network});
      // NCCL takes names only, no networks.
      if (!list.empty() && !contains(list, "/")) add({"-x", "NCCL_SOCKET_IFNAME=" + list});
      return Ok{};
    }
    if (spec_.network_interfaces.size() > 1) {
      return usage("--network-interfaces: " + std::string(mpi_flavour_name(flavour_)) +
                   " takes one interface, found " + list);
    }
    if (!spec_.network_interfaces.empty()) add({"-iface", spec_.network_interfaces.front()});
    if (!list.empty()) add({"-genv", "NCCL_SOCKET_IFNAME=" + list});
    return Ok{};
  }

  void add_output() {
    if (spec_.output_directory.empty()) return;
    add({is_orte(flavour_) ? "--output-filename" : "-outfile-pattern", spec_.output_directory});
  }

  // By -x or --env-file, which also pass on what would stay on this machine.
  bool is_given(const std::string& name) const {
    return std::any_of(spec_.variables.begin(), spec_.variables.end(),
                       [&name](const auto& variable) { return variable.name == name; });
  }

  // Passes variables by name: the values travel in mpirun's own messages. Hydra sends everything
  // anyway.
  void add_environment() {
    if (!is_orte(flavour_)) return;
    Words names;
    for (const auto& [name, value] : environment_) {
      // mpirun cannot parse the names of functions that bash exports.
      const bool plain = name.find_first_of("=%() ") == std::string::npos;
      if (plain && (travel_of(name) == Travel::kEverywhere || is_given(name))) {
        names.push_back(name);
      }
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) add({"-x", name});
  }

  const JobSpec& spec_;
  const std::vector<Host>& hosts_;
  MpiFlavour flavour_;
  const HostFindings& findings_;
  const EnvironmentList& environment_;
  Words words_;
};

void set(EnvironmentList& list, const std::string& name, const std::string& value) {
  for (auto& variable : list) {
    if (variable.first == name) {
      variable.second = value;
      return;
    }
  }
  list.emplace_back(name, value);
}

// The bundle wins over what the machine has.
void put_in_front(EnvironmentList& list, const std::string& name, const Words& folders) {
  if (folders.empty()) return;
  std::string value = join(folders, ":");
  for (const auto& variable : list) {
    if (variable.first == name && !variable.second.empty()) value += ":" + variable.second;
  }
  set(list, name, value);
}

}  // namespace

std::string_view mpi_flavour_name(MpiFlavour flavour) {
  switch (flavour) {
    case MpiFlavour::kOpenMpi:
      return "Open MPI";
    case MpiFlavour::kSpectrum:
      return "IBM Spectrum MPI";
    case MpiFlavour::kMpich:
      return "MPICH";
    case MpiFlavour::kIntel:
      return "Intel MPI";
  }
  return "";
}

// Spectrum MPI also prints "Open MPI", so it is tested first.
Result<MpiFlavour> parse_mpi_flavour(std::string_view text) {
  if (contains(text, "IBM Spectrum MPI")) return MpiFlavour::kSpectrum;
  if (contains(text, "Open MPI") || contains(text, "OpenRTE")) return MpiFlavour::kOpenMpi;
  if (contains(text, "Intel(R) MPI")) return MpiFlavour::kIntel;
  if (contains(text, "MPICH") || contains(text, "HYDRA")) return MpiFlavour::kMpich;
  const std::string first(trim(text.substr(0, text.find('\n'))));
  return usage("--mpi: mpirun --version says " + quote(first) +
               ", expected Open MPI, IBM Spectrum MPI, MPICH or Intel(R) MPI; install one of them, "
               "or omit --mpi");
}

EnvironmentList mpirun_environment(const EnvironmentList& launcher_environment, const JobSpec& spec,
                                   MpiFlavour flavour, const HostFindings& findings) {
  EnvironmentList list = forwarded_environment(launcher_environment, spec, true);
  set(list, std::string(rendezvous::env::kController), "mpi");
  Words programs;
  Words libraries;
  Words packages;
  for (const std::string& bundle : findings.bundles) {
    programs.push_back(bundle + "/bin");
    libraries.push_back(bundle + "/lib");
    packages.push_back(bundle + "/python");
  }
  put_in_front(list, "PATH", programs);
  put_in_front(list, "LD_LIBRARY_PATH", libraries);
  put_in_front(list, "PYTHONPATH", packages);
  // Gloo takes exactly one interface.
  if (findings.interfaces.size() == 1) {
    set(list, std::string(rendezvous::env::kGlooInterface), findings.interfaces.front());
  }
  // Hydra has no option for a timeout, only this variable.
  if (spec.timeout && !is_orte(flavour)) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(*spec.timeout);
    set(list, "MPIEXEC_TIMEOUT", std::to_string(seconds.count()));
  }
  return list;
}

Result<std::vector<std::string>> plan_mpirun(const JobSpec& spec, const std::vector<Host>& hosts,
                                             MpiFlavour flavour, const HostFindings& findings,
                                             const EnvironmentList& environment) {
  return Planner(spec, hosts, flavour, findings, environment).run();
}

}  // namespace hora::launcher
