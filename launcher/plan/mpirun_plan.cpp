// SPDX-License-Identifier: Apache-2.0
// Translates a job into the command line of mpirun, in the words of its launcher; what that cannot
// do is an error before anything starts, never silently ignored.
#include "launcher/plan/mpirun_plan.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "launcher/plan/plan.h"
#include "launcher/text/user_input.h"
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

constexpr std::string_view kNcclInterfaces = rendezvous::env::kNcclInterfaces;

Words words_of(std::string_view text) {
  Words words;
  for (const std::string_view word : split(text, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

// What ssh gets besides the host and the command, as one text: every mpirun splits it at blanks.
std::string ssh_arguments(const SshOptions& ssh) {
  Words words;
  if (ssh.port) words.insert(words.end(), {"-p", std::to_string(*ssh.port)});
  const auto option = [&words](const std::string& name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  option("-i", ssh.identity_file);
  option("-F", ssh.config_file);
  if (ssh.accept_new_host_keys) option("-o", "StrictHostKeyChecking=accept-new");
  return join(words, " ");
}

// All of what the launcher's ssh gets. Hydra has one option for the name of the program and another
// for its arguments: the arguments of --rsh belong to it.
std::string all_ssh_arguments(const JobSpec& spec, const MpiLauncher& launcher) {
  Words words;
  // Open MPI takes them with the program.
  if (launcher.is_hydra && spec.rsh_command.size() > 1) {
    words.assign(spec.rsh_command.begin() + 1, spec.rsh_command.end());
  }
  const std::string more = ssh_arguments(spec.ssh);
  if (!more.empty()) words.push_back(more);
  return join(words, " ");
}

std::int64_t whole_seconds(std::chrono::milliseconds time) {
  return std::chrono::ceil<std::chrono::seconds>(time).count();
}

class Planner {
 public:
  Planner(const JobSpec& spec, const std::vector<Host>& hosts, const MpiLauncher& launcher,
          const HostFindings& findings, const EnvironmentList& environment)
      : spec_(spec),
        hosts_(hosts),
        launcher_(launcher),
        findings_(findings),
        environment_(environment) {}

  Result<Words> run() {
    auto users = users_words("--mpi-args", spec_.mpi_args);
    if (!users) return std::move(users).error();
    users_words_ = std::move(*users);
    HORA_TRY(refuse_the_impossible());
    add_deadline();
    add({"mpirun"});
    add_basics();
    const std::int64_t ranks = spec_.num_proc > 0 ? spec_.num_proc : count_slots(hosts_);
    HORA_TRY(check_rank_count(ranks));
    add({"-np", std::to_string(ranks)});
    HORA_TRY(add_hosts());
    HORA_TRY(add_binding());
    add_network_stack();
    HORA_TRY(add_ssh());
    HORA_TRY(add_interfaces());
    add_output();
    add_environment();
    add(users_words_);
    add(spec_.command);
    return std::move(words_);
  }

 private:
  void add(const Words& words) { words_.insert(words_.end(), words.begin(), words.end()); }
  void add(std::string_view option, const std::string& value) {
    add(words_of(option));
    add({value});
  }

  // Written as in a shell. "-mca" and "-bind-to" are in Horovod's documentation.
  Result<Words> users_words(std::string_view option, const std::string& text) const {
    auto words = split_shell_words(text);
    if (!words) return std::move(words).error().with_context(option);
    for (std::string& word : *words) {
      const bool is_long = word.size() > 2 && word[0] == '-' && word[1] >= 'a' && word[1] <= 'z';
      const bool is_value = word.find_first_of(" =") != std::string::npos;
      if (launcher_.two_dashes && is_long && !is_value) word.insert(0, "-");
    }
    return words;
  }

  // Open MPI 5 ends when an option comes twice.
  bool is_users(std::string_view option) const {
    option.remove_prefix(std::min(option.find_first_not_of('-'), option.size()));
    return std::any_of(users_words_.begin(), users_words_.end(), [option](const auto& word) {
      return word == "--" + std::string(option) || word == "-" + std::string(option);
    });
  }

  // Two words each, or one.
  void add_unless_users(std::string_view option) {
    const Words words = words_of(option);
    if (!words.empty() && !is_users(words.front())) add(words);
  }

  // A parameter of Open MPI that comes twice is an error of all releases, and one on the command
  // line wins over the user's variable.
  bool is_users_parameter(const std::string& name) const {
    for (const char* prefix : {"OMPI_MCA_", "PRTE_MCA_"}) {
      if (value_in(environment_, prefix + name)) return true;
    }
    for (std::size_t i = 0; i + 1 < users_words_.size(); ++i) {
      if (users_words_[i].ends_with("mca") && users_words_[i + 1] == name) return true;
    }
    return false;
  }

  void add_parameter(const std::string& name, const std::string& value) {
    if (!is_users_parameter(name)) add({"--mca", name, value});
  }

  Error not_with_this(const std::string& what, std::string_view why = {}) const {
    return usage(what + " is not supported with --mpi and " + std::string(launcher_.name) +
                 (why.empty() ? "" : ": " + std::string(why)));
  }

  // mpirun moves no files, prints no events and reads no user names.
  Status refuse_the_impossible() const {
    if (!spec_.ship_files.empty()) return usage("--ship is not supported with --mpi");
    if (!spec_.ship_environment.empty()) return usage("--ship-env is not supported with --mpi");
    if (spec_.json) return usage("--json is not supported with --mpi");
    if (spec_.shown_ranks) return usage("--show-ranks is not supported with --mpi");
    if (std::find(spec_.command.begin(), spec_.command.end(), ":") != spec_.command.end()) {
      return usage(
          "--mpi: mpirun takes the argument ':' for the begin of another program; give it a script "
          "that has this command");
    }
    if (spec_.own_prefix) return usage("--output-prefix is not supported with --mpi");
    if (spec_.rotation) return usage("--output-max-size is not supported with --mpi");
    if (!spec_.shown_lines.shows_all()) {
      return usage("--show-lines and --hide-lines are not supported with --mpi");
    }
    for (const Host& host : hosts_) {
      if (!host.user.empty()) {
        return usage("-H: " + quote(format_host(host)) +
                     ": mpirun does not accept a user name; set it in ~/.ssh/config");
      }
      if (host.port) {
        return usage("-H: " + quote(format_host(host)) +
                     ": mpirun does not accept a port; set it in ~/.ssh/config, or for all with "
                     "-p");
      }
    }
    if (spec_.merge_stderr && launcher_.merge_stderr.empty()) {
      return not_with_this("--merge-stderr");
    }
    if (spec_.stdin_policy == StdinPolicy::kAll && launcher_.stdin_all.empty()) {
      return not_with_this("--stdin all", "its mpirun reaches rank 0 only");
    }
    if (spec_.prefix_timestamp && launcher_.timestamp.empty()) {
      return not_with_this("--prefix-output-with-timestamp");
    }
    if (!spec_.output_directory.empty() && launcher_.output.empty()) {
      return not_with_this("--output-filename", launcher_.no_output);
    }
    return Ok{};
  }

  // The exit code of a Hydra whose own time limit is over may be 0.
  void add_deadline() {
    if (!spec_.timeout || !launcher_.timeout.empty()) return;
    add({"timeout", "--foreground", "--kill-after=" + std::to_string(whole_seconds(spec_.grace)),
         std::to_string(whole_seconds(*spec_.timeout))});
  }

  void add_basics() {
    add_unless_users(launcher_.always);
    // Hydra prints nothing that goes to files, and would write the tags there.
    const bool to_files = launcher_.is_hydra && !spec_.output_directory.empty();
    if (spec_.prefix_output && !to_files) add_unless_users(launcher_.tag);
    if (spec_.prefix_timestamp) add_unless_users(launcher_.timestamp);
    if (spec_.merge_stderr) add_unless_users(launcher_.merge_stderr);
    if (spec_.stdin_policy == StdinPolicy::kNone) add_unless_users(launcher_.stdin_none);
    if (spec_.stdin_policy == StdinPolicy::kAll) add_unless_users(launcher_.stdin_all);
    if (spec_.timeout && !launcher_.timeout.empty()) {
      add(launcher_.timeout, std::to_string(whole_seconds(*spec_.timeout)));
    }
  }

  Status add_hosts() {
    if (launcher_.per_host.empty()) {
      add(launcher_.hosts, format_host_list(hosts_));
      return Ok{};
    }
    Words names;
    for (const Host& host : hosts_) {
      if (host.slots != hosts_.front().slots) {
        return usage("-H: " + std::string(launcher_.name) +
                     " needs the same number of slots on every host, found " +
                     format_host(hosts_.front()) + " and " + format_host(host));
      }
      names.push_back(host.name);
    }
    add(launcher_.per_host, std::to_string(hosts_.front().slots.value_or(1)));
    add(launcher_.hosts, join(names, ","));
    return Ok{};
  }

  // Unbound by default, because training processes have many threads, and mpirun would put each
  // rank on one core.
  Status add_binding() {
    if (spec_.binding_args.empty()) {
      const Words words = words_of(launcher_.unbound);
      for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
        if (!is_users(words[i])) add({words[i], words[i + 1]});
      }
      return Ok{};
    }
    auto words = users_words("--binding-args", spec_.binding_args);
    if (!words) return std::move(words).error();
    add(*words);
    return Ok{};
  }

  // NCCL_IB_DISABLE=1 says that the user wants TCP.
  bool wants_tcp() const {
    return std::any_of(spec_.knobs.begin(), spec_.knobs.end(), [](const auto& knob) {
      return knob.name == "NCCL_IB_DISABLE" && knob.value == "1";
    });
  }

  void add_network_stack() {
    if (launcher_.is_hydra) return;
    if (launcher_.chooses_network) {
      if (wants_tcp()) add({"-tcp"});
      return;
    }
    // Forces TCP for MPI's own messages, since Open MPI's RDMA does not cope with processes that
    // fork, as data loaders do.
    add_parameter("pml", "ob1");
    add_parameter("btl", "^openib");
  }

  Status add_ssh() {
    for (const std::string& word : spec_.rsh_command) {
      if (word.find(' ') == std::string::npos) continue;
      return usage("--rsh: mpirun splits at blanks, found " + quote(word) +
                   "; give it a script that has this command");
    }
    for (const std::string* path : {&spec_.ssh.identity_file, &spec_.ssh.config_file}) {
      if (path->find(' ') == std::string::npos) continue;
      return usage("--mpi: mpirun splits the arguments of ssh at blanks, found " + quote(*path));
    }
    const std::string arguments = all_ssh_arguments(spec_, launcher_);
    if (!arguments.empty() || !spec_.rsh_command.empty()) add(words_of(launcher_.ssh));
    if (!spec_.rsh_command.empty()) {
      add(launcher_.ssh_agent,
          launcher_.is_hydra ? spec_.rsh_command.front() : join(spec_.rsh_command, " "));
    }
    if (!arguments.empty() && !launcher_.ssh_arguments.empty()) {
      add(launcher_.ssh_arguments, arguments);
    }
    // All connections directly from here, and at once.
    const bool many = hosts_.size() >= kManyHosts;
    const bool needs_agent = !spec_.rsh_command.empty() && launcher_.daemons_need_agent;
    if (!launcher_.ssh_from_here.empty() && (many || needs_agent)) {
      add(words_of(launcher_.ssh_from_here));
      add(launcher_.ssh_at_once, std::to_string(hosts_.size()));
    }
    return Ok{};
  }

  // The user's choice, else the interfaces that were found to connect the hosts.
  Status add_interfaces() {
    const Words& chosen =
        spec_.network_interfaces.empty() ? findings_.interfaces : spec_.network_interfaces;
    const std::string list = join(chosen, ",");
    if (launcher_.is_hydra) {
      if (spec_.network_interfaces.size() > 1) {
        return usage("--network-interfaces: " + std::string(launcher_.name) +
                     " takes one interface, found " + list);
      }
      if (!spec_.network_interfaces.empty()) add({"-iface", list});
      return Ok{};
    }
    // A name that a host does not have makes Open MPI 4 overlook the others there.
    const bool differ = spec_.network_interfaces.empty() && chosen.size() > 1;
    const std::string network = differ ? common_network(findings_.addresses) : "";
    // The two exclude each other.
    if (!list.empty() && !is_users_parameter("btl_tcp_if_exclude")) {
      add_parameter("btl_tcp_if_include", network.empty() ? list : network);
    }
    return Ok{};
  }

  void add_output() {
    if (spec_.output_directory.empty()) return;
    const auto place = [this](std::string_view suffix) {
      return spec_.output_directory + std::string(suffix);
    };
    add(launcher_.output, place(launcher_.output_suffix));
    if (!launcher_.errors.empty()) add(launcher_.errors, place(launcher_.errors_suffix));
  }

  // By -x or --env-file, which also pass on what would stay on this machine.
  bool is_given(const std::string& name) const {
    return std::any_of(spec_.variables.begin(), spec_.variables.end(),
                       [&name](const auto& variable) { return variable.name == name; });
  }

  // Passes variables by name: the values travel in mpirun's own messages. Hydra sends everything
  // anyway.
  void add_environment() {
    if (launcher_.is_hydra) return;
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
  const MpiLauncher& launcher_;
  const HostFindings& findings_;
  const EnvironmentList& environment_;
  Words users_words_;  // of --mpi-args
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

void set_unless_set(EnvironmentList& list, const std::string& name, const std::string& value) {
  if (!value_in(list, name)) list.emplace_back(name, value);
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

EnvironmentList mpirun_environment(const EnvironmentList& launcher_environment, const JobSpec& spec,
                                   const MpiLauncher& launcher, const HostFindings& findings) {
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
  // The library path of the ranks replaces the one that Open MPI 5 sets on other hosts.
  if (!findings.mpi_libraries.empty()) libraries.push_back(findings.mpi_libraries);
  put_in_front(list, "PATH", programs);
  put_in_front(list, "LD_LIBRARY_PATH", libraries);
  put_in_front(list, "PYTHONPATH", packages);
  // Gloo takes exactly one interface.
  if (findings.interfaces.size() == 1) {
    set(list, std::string(rendezvous::env::kGlooInterface), findings.interfaces.front());
  }
  // NCCL takes names only, no networks. The user's own choice stays.
  const std::string interfaces =
      join(spec.network_interfaces.empty() ? findings.interfaces : spec.network_interfaces, ",");
  if (!interfaces.empty() && interfaces.find('/') == std::string::npos) {
    set_unless_set(list, std::string(kNcclInterfaces), interfaces);
  }
  // An unbuffered Python writes each argument of print() by itself. Hydra puts a tag before each,
  // and Open MPI prints parts of the lines of several ranks in one.
  const auto is_given = [&spec](const EnvironmentVariable& each) {
    return each.name == rendezvous::env::kPythonUnbuffered;
  };
  if (spec.prefix_output && std::none_of(spec.variables.begin(), spec.variables.end(), is_given)) {
    std::erase_if(list, [](const auto& variable) {
      return variable.first == rendezvous::env::kPythonUnbuffered;
    });
  }
  if (spec.binding_args.empty() && !launcher.unbound_variable.empty()) {
    set_unless_set(list, std::string(launcher.unbound_variable), "off");
  }
  const std::string arguments = all_ssh_arguments(spec, launcher);
  if (!arguments.empty() && !launcher.ssh_arguments_variable.empty()) {
    const std::string name(launcher.ssh_arguments_variable);
    const auto users = value_in(list, name);
    set(list, name, users ? arguments + " " + *users : arguments);
  }
  return list;
}

Result<std::vector<std::string>> plan_mpirun(const JobSpec& spec, const std::vector<Host>& hosts,
                                             const MpiLauncher& launcher,
                                             const HostFindings& findings,
                                             const EnvironmentList& environment) {
  return Planner(spec, hosts, launcher, findings, environment).run();
}

}  // namespace hora::launcher
