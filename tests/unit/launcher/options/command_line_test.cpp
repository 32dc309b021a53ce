// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/command_line.h"

#include <map>
#include <random>

#include "launcher/options/option_table.h"
#include "launcher/options/usage_text.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using Words = std::vector<std::string>;
using Variables = std::map<std::string, std::string, std::less<>>;

Result<Command> parse(const Words& words, const Variables& variables = {},
                      const char* program = "horarun") {
  std::vector<const char*> argv{program};
  for (const std::string& word : words) argv.push_back(word.c_str());
  ProcessInputs inputs;
  inputs.variable = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
  inputs.read_file = [](const std::string& path) -> Result<std::string> {
    if (path == "hosts") return std::string("a slots=2\nb slots=2\n");
    if (path == "nodes") return std::string("a\nb\na\n");
    if (path == "variables") return std::string("# of the job\nA=1\n\nHERE\r\nEMPTY=\nB= 'x' \n");
    if (path == "bad variables") return std::string("A=1\nexport B=2\n");
    if (path == "ranks") return std::string("rank 0=b slot=0\nrank 1=a slot=1\n");
    if (path.starts_with("text:")) return path.substr(5);
    if (path == "bad") return std::string("a slots=2\nb slots=x\n");
    if (path == "/etc/mpi/hostfile") return std::string("w-0:2\nw-1:2\n");
    if (path == "/etc/mpi/discover_hosts.sh") return std::string("#!/bin/sh\n");
    return errno_error(ENOENT, "opening " + path);
  };
  inputs.has_program = [](std::string_view name) {
    return name == "true" || name == "mpirun" || name == "srun";
  };
  inputs.has_file = [](const std::string& path) { return path == "train.py"; };
  return parse_command_line(static_cast<int>(argv.size()), argv.data(), inputs);
}

template <typename T>
T parsed(const Words& words, const Variables& variables = {}) {
  auto command = parse(words, variables);
  for (const auto& word : words) UNSCOPED_INFO(word);
  if (!command) FAIL(command.error().message);
  REQUIRE(std::holds_alternative<T>(*command));
  return std::get<T>(*command);
}

JobSpec job_of(const Words& words, const Variables& variables = {}) {
  return parsed<Launch>(words, variables).job;
}

std::string error_of(const Words& words, const Variables& variables = {}) {
  auto command = parse(words, variables);
  for (const auto& word : words) UNSCOPED_INFO(word);
  REQUIRE_FALSE(command);
  CHECK(command.error().code == ErrorCode::kUsage);
  return command.error().message;
}

std::string knob(const JobSpec& job, std::string_view name) {
  for (const auto& variable : job.knobs) {
    if (variable.name == name) return variable.value;
  }
  return "unset";
}

TEST_CASE("The program begins with the first word that is no option") {
  const JobSpec job = job_of({"-np", "2", "python", "x.py", "-np", "5", "--verbose"});
  CHECK(job.num_proc == 2);
  CHECK(job.command == Words{"python", "x.py", "-np", "5", "--verbose"});
  CHECK_FALSE(job.verbose);
  CHECK(job_of({"-np", "2", "--", "-x", "--"}).command == Words{"-x", "--"});
  CHECK(job_of({"-np", "2", "-"}).command == Words{"-"});
}

TEST_CASE("Options are spelled as horovodrun takes them") {
  for (const Words& words :
       {Words{"-np", "3", "x"}, Words{"--num-proc", "3", "x"}, Words{"--num-proc=3", "x"},
        Words{"-np=3", "x"}, Words{"-np3", "x"}, Words{"-n", "3", "x"}, Words{"--num-p", "3", "x"},
        Words{"-np", "9", "-np", "3", "x"}}) {
    CHECK(job_of(words).num_proc == 3);
  }
  CHECK(job_of({"-np", "1", "-p2222", "x"}).ssh.port == 2222);
  CHECK(format_host_list(job_of({"-Ha:4,b:4", "x"}).hosts) == "a:4,b:4");
  CHECK(format_host_list(job_of({"-hostfile", "hosts", "x"}).hosts) == "a:2,b:2");
  CHECK(job_of({"-np", "1", "-prefix-timestamp", "x"}).prefix_timestamp);
  // An abbreviation that is unambiguous in horovodrun stays so beside our own options.
  CHECK(job_of({"-np", "1", "--disable", "--start", "7", "x"}).start_timeout.count() == 7000);
  CHECK(error_of({"--num", "3", "x"}) ==
        "--num is ambiguous; it could be --num-proc or --num-nccl-streams");
}

TEST_CASE("Every option of horovodrun 0.28 is known") {
  for (const std::string_view name : {"-h",
                                      "--help",
                                      "-v",
                                      "--version",
                                      "-np",
                                      "--num-proc",
                                      "-cb",
                                      "--check-build",
                                      "--disable-cache",
                                      "--start-timeout",
                                      "--network-interfaces",
                                      "--network-interface",
                                      "--output-filename",
                                      "--verbose",
                                      "--config-file",
                                      "-p",
                                      "--ssh-port",
                                      "-i",
                                      "--ssh-identity-file",
                                      "--fusion-threshold-mb",
                                      "--cycle-time-ms",
                                      "--cache-capacity",
                                      "--hierarchical-allreduce",
                                      "--no-hierarchical-allreduce",
                                      "--hierarchical-allgather",
                                      "--no-hierarchical-allgather",
                                      "--torus-allreduce",
                                      "--no-torus-allreduce",
                                      "--autotune",
                                      "--no-autotune",
                                      "--autotune-log-file",
                                      "--autotune-warmup-samples",
                                      "--autotune-steps-per-sample",
                                      "--autotune-bayes-opt-max-samples",
                                      "--autotune-gaussian-process-noise",
                                      "--min-np",
                                      "--min-num-proc",
                                      "--max-np",
                                      "--max-num-proc",
                                      "--slots-per-host",
                                      "--elastic-timeout",
                                      "--reset-limit",
                                      "--blacklist-cooldown-range",
                                      "--timeline-filename",
                                      "--timeline-mark-cycles",
                                      "--no-timeline-mark-cycles",
                                      "--no-stall-check",
                                      "--stall-check",
                                      "--stall-check-warning-time-seconds",
                                      "--stall-check-shutdown-time-seconds",
                                      "--mpi-threads-disable",
                                      "--no-mpi-threads-disable",
                                      "--mpi-args",
                                      "--tcp",
                                      "--binding-args",
                                      "--num-nccl-streams",
                                      "--thread-affinity",
                                      "--gloo-timeout-seconds",
                                      "--log-level",
                                      "--log-with-timestamp",
                                      "--log-without-timestamp",
                                      "-prefix-timestamp",
                                      "--prefix-output-with-timestamp",
                                      "--log-hide-timestamp",
                                      "--no-log-hide-timestamp",
                                      "-H",
                                      "--hosts",
                                      "-hostfile",
                                      "--hostfile",
                                      "--host-discovery-script",
                                      "--gloo",
                                      "--mpi",
                                      "--jsrun"}) {
    INFO(name);
    CHECK(find_option(name, kVerbLaunch) != nullptr);
  }
}

TEST_CASE("No name belongs to two options") {
  std::map<std::pair<std::string_view, unsigned>, int> seen;
  for (const OptionRow& row : option_table()) {
    for (const std::string_view name : names_of(row)) {
      for (const unsigned verb : {kVerbLaunch, kVerbCache, kVerbRendezvous, kVerbKubernetes}) {
        if ((row.verbs & verb) != 0) CHECK(++seen[{name, verb}] == 1);
      }
    }
    CHECK_FALSE(row.help.empty());
    CHECK(row.takes_value() == !row.metavar.empty());
  }
}

TEST_CASE("Options set the job") {
  const JobSpec job = job_of({"-np",
                              "4",
                              "-H",
                              "a:2,b:2",
                              "-p",
                              "2222",
                              "-i",
                              "key",
                              "--network-interfaces",
                              "eth0,eth1",
                              "--network-interface",
                              "10.0.0.0/8",
                              "--network-interface=eth0",
                              "--output-filename",
                              "out",
                              "--prefix-output-with-timestamp",
                              "--verbose",
                              "--start-timeout",
                              "1m30s",
                              "--grace",
                              "0.5",
                              "--lease",
                              "20",
                              "--timeout",
                              "2h",
                              "--wdir",
                              "/w",
                              "--ship",
                              "a.py",
                              "--ship",
                              "b.py",
                              "--runtime",
                              "host",
                              "--stdin",
                              "all",
                              "--fan-out",
                              "8",
                              "--accept-new-host-keys",
                              "--ssh-config-file",
                              "cfg",
                              "--no-prefix-output",
                              "--timings",
                              "--json",
                              "--gloo",
                              "python"});
  CHECK(format_host_list(job.hosts) == "a:2,b:2");
  CHECK(job.ssh.port == 2222);
  CHECK(job.ssh.identity_file == "key");
  CHECK(job.ssh.accept_new_host_keys);
  CHECK(job.ssh.config_file == "cfg");
  CHECK(job.network_interfaces == Words{"eth0", "eth1", "10.0.0.0/8"});
  CHECK(job.output_directory == "out");
  CHECK(job.start_timeout.count() == 90'000);
  CHECK(job.grace.count() == 500);
  CHECK(job.lease.count() == 20'000);
  CHECK(job.timeout == std::chrono::hours(2));
  CHECK(job.working_directory == "/w");
  CHECK(job.ship_files == Words{"a.py", "b.py"});
  CHECK(job.runtime == RuntimeKind::kHost);
  CHECK(job.stdin_policy == StdinPolicy::kAll);
  CHECK(job.fan_out == 8);
  CHECK((job.verbose && job.json && job.timings && job.prefix_timestamp && !job.prefix_output));
}

TEST_CASE("Tuning options become variables of the ranks") {
  const JobSpec job = job_of({"-np", "1", "--fusion-threshold-mb", "64", "--cycle-time-ms", "2.5",
                              "--no-torus-allreduce", "--hierarchical-allreduce", "--tcp",
                              "--thread-affinity", "0,8", "--log-level", "DEBUG", "--stall-check",
                              "--autotune", "--autotune-log-file", "l.csv", "x"});
  CHECK(knob(job, "HOROVOD_FUSION_THRESHOLD") == "67108864");
  CHECK(knob(job, "HOROVOD_CYCLE_TIME") == "2.5");
  CHECK(knob(job, "HOROVOD_TORUS_ALLREDUCE") == "0");
  CHECK(knob(job, "HOROVOD_HIERARCHICAL_ALLREDUCE") == "1");
  CHECK(knob(job, "NCCL_IB_DISABLE") == "1");
  CHECK(knob(job, "HOROVOD_THREAD_AFFINITY") == "0,8");
  CHECK(knob(job, "HOROVOD_LOG_LEVEL") == "DEBUG");
  CHECK(knob(job, "HOROVOD_STALL_CHECK_DISABLE") == "0");
  CHECK(knob(job, "HOROVOD_AUTOTUNE") == "1");
  CHECK(knob(job, "HOROVOD_AUTOTUNE_LOG") == "l.csv");
  CHECK(job.verbose);
  CHECK(job_of({"-np", "1", "--no-autotune", "x"}).knobs.empty());
}

TEST_CASE("An option without effect is told, not ignored") {
  const auto launch = parsed<Launch>({"-np", "1", "--autotune-log-file", "l", "x"});
  CHECK(launch.job.knobs.empty());
  CHECK(launch.warnings == Words{"--autotune-log-file has no effect without --autotune"});
  CHECK(parsed<Launch>({"-np", "1", "--log-hide-timestamp", "x"}).warnings.size() == 1);
  CHECK(parsed<Launch>({"-np", "1", "--timeline-mark-cycles", "--timeline-filename", "t", "x"})
            .warnings.empty());
}

TEST_CASE("Under the name horovodrun it behaves as users of that name expect") {
  for (const char* name : {"horovodrun", "/usr/bin/horovodrun", "./horovodrun"}) {
    INFO(name);
    CHECK(std::get<ShowText>(*parse({"--version"}, {}, name)).text == "0.28.1\n");
    const std::string help = std::get<ShowText>(*parse({"--help"}, {}, name)).text;
    CHECK(help.find("horovodrun's standard input (default: none)") != std::string::npos);
    CHECK(help.find("horarun") == std::string::npos);
    CHECK(std::get<CheckBuild>(*parse({"-cb"}, {}, name)).as_horovodrun);
    const auto job = [&](const Words& words) {
      return std::get<Launch>(*parse(words, {}, name)).job;
    };
    CHECK(job({"-np", "1", "x"}).stdin_policy == StdinPolicy::kNone);
    CHECK(job({"-np", "1", "--stdin", "0", "x"}).stdin_policy == StdinPolicy::kRankZero);
    CHECK(job({"-np", "1", "--mpi", "x"}).stdin_policy == StdinPolicy::kRankZero);
  }
  CHECK_FALSE(std::get<CheckBuild>(*parse({"-cb"}, {}, "horovodrunner")).as_horovodrun);
  CHECK(job_of({"-np", "1", "x"}).stdin_policy == StdinPolicy::kRankZero);
}

TEST_CASE("What a job leaves on the hosts") {
  CHECK(job_of({"-np", "1", "x"}).cache_limits == kDefaultCacheLimits);
  const auto limits =
      job_of({"-np", "1", "--cache-max-age", "500ms", "--cache-max-size", "1G", "x"}).cache_limits;
  CHECK(limits == CacheLimits{std::chrono::seconds(1), std::uint64_t{1} << 30});
  CHECK(job_of({"-np", "1", "--cache-max-age", "0", "--cache-max-size", "0", "x"}).cache_limits ==
        CacheLimits{});
  CHECK(parsed<RunDoctor>({"doctor", "--cache-max-size", "0"}).job.cache_limits.max_bytes ==
        std::nullopt);
}

TEST_CASE("Other commands") {
  CHECK(parsed<ShowText>({"--version"}).text == std::string(HORA_VERSION) + "\n");
  CHECK(parsed<ShowText>({"-v"}).text == std::string(HORA_VERSION) + "\n");
  CHECK(parsed<CheckBuild>({"-cb", "--verbose", "--json"}).json);
  CHECK(parsed<Launch>({"-np", "1", "--dry-run", "x"}).dry_run);
  CHECK(parsed<Smoke>({"-np", "4", "--smoke", "--json"}).job.json);
  CHECK(parsed<Smoke>({"-H", "a:2", "--smoke"}).job.num_proc == 0);
  CHECK(parsed<Explain>({"explain", "E_SSH_AUTH"}).code == "E_SSH_AUTH");
  CHECK(parsed<Explain>({"explain"}).code.empty());
  const auto cache = parsed<ManageCache>({"cache", "clean", "-H", "a,b", "-p", "22", "--json"});
  CHECK(cache.action == ManageCache::Action::kClean);
  CHECK(format_host_list(cache.job.hosts) == "a,b");
  CHECK(parsed<ManageCache>({"cache", "ls"}).job.hosts.empty());
  CHECK((cache.limits == CacheLimits{} && !cache.dry_run));
  const auto limited =
      parsed<ManageCache>({"cache", "clean", "--older-than", "1d", "--max-size=500M", "--dry-run"});
  CHECK(limited.limits == CacheLimits{std::chrono::hours(24), std::uint64_t{500} << 20});
  CHECK(limited.dry_run);
  const auto server = parsed<RunRendezvous>({"rendezvous", "--port", "7000", "--address", "::1",
                                             "--token-file", "t", "--allow", "10.0.0.0/8, ::1"});
  CHECK(server.port == 7000);
  CHECK(server.address == "::1");
  CHECK(server.allow == Words{"10.0.0.0/8", "::1"});
  CHECK_FALSE(server.end_with);
  const auto local =
      parsed<RunRendezvous>({"rendezvous", "--address", "localhost", "--end-with", "12"});
  CHECK(local.address == "127.0.0.1");
  CHECK(local.end_with == 12);
  // Behind an option these words are programs.
  CHECK(job_of({"-np", "1", "cache"}).command == Words{"cache"});
}

TEST_CASE("Help fits a screen and names every common option") {
  const std::string text = parsed<ShowText>({"--help"}).text;
  CHECK(std::count(text.begin(), text.end(), '\n') <= 60);
  const std::string all = parsed<ShowText>({"--help=all"}).text;
  const std::string man = manual_page("0.1.0");
  std::size_t widest = 0;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = all.find('\n', at);
    widest = std::max(widest, end - at);
    at = end + 1;
  }
  CHECK(widest <= 100);
  for (const OptionRow& row : option_table()) {
    const std::string name(long_name(row));
    INFO(name);
    CHECK(option_reference().find("`" + name + "`") != std::string::npos);
    if ((row.verbs & kVerbLaunch) == 0 || row.has(kHidden)) continue;
    CHECK(all.find(std::string(shown_name(row))) != std::string::npos);
    if (row.has(kCommon)) CHECK(text.find(std::string(shown_name(row))) != std::string::npos);
    std::string in_roff;
    for (const char c : name) in_roff += c == '-' ? "\\-" : std::string(1, c);
    CHECK(man.find(in_roff) != std::string::npos);
  }
  CHECK(parsed<ShowText>({"-np", "2", "-h"}).text == text);
  CHECK(parsed<ShowText>({"cache", "--help"}).text.find("cache ls") != std::string::npos);
  CHECK(parsed<ShowText>({"rendezvous", "-h"}).text.find("--token-file") != std::string::npos);
  CHECK(job_of({"-np", "2", "x", "--help"}).command.size() == 2);
}

TEST_CASE("A usage error names the option, what was found and what was expected") {
  CHECK(error_of({}).find("no program to run") == 0);
  CHECK(error_of({"-np", "2"}) ==
        "no program to run; expected: horarun [options] program [arguments]");
  CHECK(error_of({"x"}).find("-np is missing") == 0);
  CHECK(error_of({"-np", "x", "y"}) == "-np: expected a whole number from 1 to 1000000, found 'x'");
  CHECK(error_of({"--num-proc", "0", "y"}).find("--num-proc: expected") == 0);
  CHECK(error_of({"-np"}) == "-np needs a value: -np N");
  CHECK(error_of({"-np", "--verbose", "x"}) == "-np needs a value: -np N");
  CHECK(error_of({"-np", "-1", "x"}).find("found '-1'") != std::string::npos);
  CHECK(error_of({"-np", "1", "--output-filename=", "x"}).find("needs a value") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--verbose=yes", "x"}) == "--verbose takes no value, found 'yes'");
  CHECK(error_of({"-np", "1", "--hostfil", "x", "y"}).find("--hostfile: opening x") == 0);
  CHECK(error_of({"--hosfile", "x"}) == "unknown option '--hosfile'; did you mean --hostfile?");
  CHECK(error_of({"-nq", "2", "x"}).find("did you mean -np?") != std::string::npos);
  CHECK(error_of({"--completely-different"}) == "unknown option '--completely-different'");
  CHECK(error_of({"-np", "1", "-H", "a:1", "--hostfile", "hosts", "x"}) ==
        "-H and --hostfile cannot be used together");
  CHECK(error_of({"-np", "1", "--torus-allreduce", "--no-torus-allreduce", "x"})
            .find("cannot be used together") != std::string::npos);
  CHECK(error_of({"-np", "1", "--log-level", "debug", "x"}).find("TRACE, DEBUG") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--grace", "soon", "x"}) ==
        "--grace: expected a time such as 30, 30s, 1m30s or 500ms, found 'soon'");
  CHECK(error_of({"-np", "1", "--lease", "100ms", "x"}).find("at least 1s") != std::string::npos);
  CHECK(error_of({"-np", "1", "-p", "70000", "x"}).find("from 1 to 65535") != std::string::npos);
  CHECK(error_of({"-np", "1", "--cycle-time-ms", "nan", "x"}).find("expected a number") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--autotune-gaussian-process-noise", "1.5", "x"}).find("0 to 1") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--thread-affinity", "0,x", "x"}).find("separated by commas") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--slots-per-host", "many", "x"}).find("or auto") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--network-interfaces", "eth0,,eth1", "x"}).find("--network-inter") ==
        0);
  CHECK(error_of({"-np", "1", "--network-interfaces", "10.0.0.0/40", "x"}).find("not a network") !=
        std::string::npos);
  CHECK(error_of({"--hostfile", "bad", "x"}).find("bad:2:9: expected the number of slots") == 0);
  CHECK(error_of({"--hostfile", "absent", "x"}) ==
        "--hostfile: opening absent: No such file or directory");
  CHECK(error_of({"-np", "2", "--smoke", "x"}).find("--smoke brings its own program") == 0);
  CHECK(error_of({"cache"}).find("cache ls|clean") != std::string::npos);
  CHECK(error_of({"cache", "ls", "x"}).find("unexpected argument 'x'") == 0);
  CHECK(error_of({"rendezvous", "--address", "here"}).find("--address") == 0);
  CHECK(error_of({"rendezvous", "--end-with", "0"}).find("--end-with: expected") == 0);
  CHECK(error_of({"rendezvous", "--allow", "all"}).find("--allow") == 0);
  CHECK(error_of({"rendezvous", "-np", "2"}).find("unknown option '-np'") == 0);
  CHECK(error_of({"explain", "a", "b"}).find("explain [code]") != std::string::npos);
  CHECK(error_of({""}).find("-np is missing") == std::string::npos);
}

TEST_CASE("A forgotten comma is caught") {
  const std::string message = error_of({"-np", "8", "-H", "a:4", "b:4", "python", "x.py"});
  CHECK(message ==
        "'b:4' looks like a host, but the program is expected here; write -H a:4,b:4 "
        "without blanks, or put -- before a program of that name");
  CHECK(error_of({"-H", "a:4,", "b:4,c:4", "x"}).find("write -H a:4,b:4,c:4") != std::string::npos);
  CHECK(error_of({"-H", "a:4", "n[1-2]:4", "x"}).find("looks like a host") != std::string::npos);
  CHECK(job_of({"-H", "a:4", "--", "b:4"}).command == Words{"b:4"});
  CHECK(job_of({"-np", "1", "b:4"}).command == Words{"b:4"});
  CHECK(job_of({"-H", "a:4", "/x/b:4"}).command == Words{"/x/b:4"});
}

TEST_CASE("--chaos") {
  CHECK(!job_of({"-np", "4", "x"}).chaos);
  const JobSpec job = job_of({"-np", "4", "--chaos", "kill:3@10s,stop:b@20s+3s", "x"});
  REQUIRE(job.chaos);
  CHECK(job.chaos->acts.size() == 2);
  CHECK(job_of({"-np", "1", "x"}, {{"HORARUN_CHAOS", "term:0@1"}}).chaos->acts.size() == 1);
  CHECK(error_of({"-np", "4", "--chaos", "kill:3", "x"}).find("--chaos: column 7: ") == 0);
  for (const Words& other : {Words{"--min-np", "2"},
                             {"--host-discovery-script", "s"},
                             {"--mpi"},
                             {"--pmix"},
                             {"--pmi", "pmi1"}}) {
    Words words{"-np", "4", "--chaos", "kill:3@1s"};
    words.insert(words.end(), other.begin(), other.end());
    words.push_back("x");
    CHECK(error_of(words).find("--chaos cannot be used with ") == 0);
  }
}

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

std::string variable(const JobSpec& job, std::string_view name) {
  for (const auto& each : job.variables) {
    if (each.name == name) return each.value;
  }
  return "unset";
}

TEST_CASE("Variables for the ranks") {
  const Variables here{{"HERE", "value"}};
  const JobSpec job =
      job_of({"-np", "1", "-x", "A=b=c", "--env", "HERE", "-x=D=", "-x", "A=2", "x"}, here);
  CHECK(variable(job, "A") == "2");
  CHECK(variable(job, "HERE") == "value");
  CHECK(variable(job, "D").empty());
  CHECK(job.variables.size() == 3);

  const JobSpec both = job_of({"-np", "1", "-x", "A=3", "--env-file", "variables", "x"}, here);
  CHECK(variable(both, "A") == "3");  // wherever it stands
  CHECK(variable(both, "HERE") == "value");
  CHECK(variable(both, "EMPTY").empty());
  CHECK(variable(both, "B") == " 'x' ");

  const auto warned = parsed<Launch>({"-np", "1", "-x", "ABSENT", "--env-file", "variables", "x"});
  CHECK(warned.warnings == Words{"variables:4: HERE is not set here, so it is not passed on",
                                 "-x: ABSENT is not set here, so it is not passed on"});
  CHECK(error_of({"-np", "1", "-x", "=1", "x"}) == "-x: expected VAR or VAR=VALUE");
  CHECK(error_of({"-np", "1", "-x", "RANK=1", "x"}).find("-x: RANK cannot be set") == 0);
  CHECK(error_of({"-np", "1", "--env", "A B", "x"}).find("a blank in the name 'A B'") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--env-file", "bad variables", "x"}).find("bad variables:2:1: ") ==
        0);
  CHECK(error_of({"-np", "1", "--env-file", "none", "x"}) ==
        "--env-file: opening none: No such file or directory");
}

TEST_CASE("A module is run by Python") {
  CHECK(job_of({"-np", "1", "-m", "package.train", "--lr", "3"}).command ==
        Words{"python3", "-m", "package.train", "--lr", "3"});
  CHECK(job_of({"-np", "1", "--module", "train"}).command == Words{"python3", "-m", "train"});
  CHECK(error_of({"-np", "1", "-m"}).find("no program to run") == 0);
  CHECK(error_of({"-np", "1", "-m", "--smoke"}).find("--smoke brings") == 0);
}

std::string hosts_of(const Words& words) { return format_host_list(job_of(words).hosts); }

TEST_CASE("Ranks by host") {
  for (const Words& words :
       {Words{"-N", "2", "x"}, Words{"-N2", "x"}, Words{"-ppn", "2", "x"},
        Words{"--nproc-per-node=2", "x"}, Words{"--nproc_per_node", "2", "x"}}) {
    CHECK(hosts_of(words) == "localhost:2");
    CHECK(job_of(words).num_proc == 0);
  }
  CHECK(hosts_of({"-N", "2", "-H", "a,b:4,c:0", "x"}) == "a:2,b:2,c:0");
  CHECK(hosts_of({"--nnodes", "2", "-H", "a:4,b:0,c:3,d:1", "x"}) == "a:4,c:3");
  CHECK(hosts_of({"--nnodes", "2", "-N", "3", "-H", "a:4,b:3,c:1", "x"}) == "a:3,b:3");
  CHECK(job_of({"-np", "3", "--nnodes", "1", "x"}).hosts.empty());
  const JobSpec by_gpu = job_of({"--nproc-per-node", "gpu", "x"});
  CHECK(by_gpu.slots_per_host_auto);
  CHECK(format_host_list(by_gpu.hosts) == "localhost");
  CHECK(job_of({"-N", "auto", "-H", "a,b", "x"}).slots_per_host_auto);

  CHECK(error_of({"-N", "3", "-H", "a:4,b:2", "x"}) == "--nproc-per-node 3: host b has 2 slots");
  CHECK(error_of({"-N", "0", "x"}).find("--nproc-per-node: expected a number of ranks") == 0);
  CHECK(error_of({"-N", "cpu", "x"}).find("or auto, found 'cpu'") != std::string::npos);
  CHECK(error_of({"--nnodes", "3", "-H", "a:4,b:2", "x"}) ==
        "--nnodes 3 asks for 3 hosts, but there are 2");
  CHECK(error_of({"-np", "2", "--nnodes", "2", "x"}).find("(this machine); give hosts") !=
        std::string::npos);
  CHECK(error_of({"-np", "2", "--nnodes", "1:4", "x"}).find("--min-np and --max-np") !=
        std::string::npos);
  CHECK(error_of({"-np", "2", "--nnodes", "x", "x"}).find("found 'x'") != std::string::npos);
  CHECK(error_of({"-N", "2", "--slots-per-host", "2", "x"}).find("cannot be used together") !=
        std::string::npos);
}

TEST_CASE("Whose output is printed, and where") {
  CHECK_FALSE(job_of({"-np", "2", "x"}).shown_ranks);
  CHECK(job_of({"-np", "2", "--show-ranks", "1", "x"}).shown_ranks->contains(1));
  CHECK_FALSE(job_of({"-np", "2", "--show-ranks", "1", "x"}).shown_ranks->contains(0));
  CHECK(error_of({"-np", "2", "--show-ranks", "a", "x"}).find("--show-ranks: column 1") == 0);
  CHECK(job_of({"-np", "2", "--merge-stderr-to-stdout", "x"}).merge_stderr);
  CHECK(job_of({"-np", "2", "--tag-output", "x"}).prefix_output);
  CHECK(error_of({"-np", "2", "--tag-output", "--no-prefix-output", "x"})
            .find("cannot be used together") != std::string::npos);
}

TEST_CASE("Programs with ':' between them share one world") {
  const JobSpec job =
      job_of({"-np", "2",  "-x",  "A=1", "--report", "r.json", "./a",    "--lr", "3",   ":", "-n",
              "3",   "-x", "A=2", "-m",  "train",    ":",      "--np=1", "--",   "./c", ":"});
  CHECK(job.command == Words{"./a", "--lr", "3"});
  CHECK(job.num_proc == 6);
  CHECK(job.variables.empty());
  REQUIRE(job.programs.size() == 3);
  CHECK(job.programs[0].command == job.command);
  CHECK(job.programs[0].ranks == 2);
  CHECK(job.programs[0].variables == std::vector<EnvironmentVariable>{{"A", "1"}});
  CHECK(job.programs[1].command == Words{"python3", "-m", "train"});
  CHECK(job.programs[1].ranks == 3);
  CHECK(job.programs[1].variables == std::vector<EnvironmentVariable>{{"A", "2"}});
  CHECK(job.programs[2].command == Words{"./c", ":"});
  CHECK(job.programs[2].variables.empty());

  // Behind "--", and inside of a word, it is a character like any other.
  const JobSpec one = job_of({"-np", "2", "--", "a", ":", "b"});
  CHECK(one.command == Words{"a", ":", "b"});
  CHECK(one.programs.empty());
  CHECK(job_of({"-np", "2", "a", "x:y", "::"}).command == Words{"a", "x:y", "::"});
}

TEST_CASE("A ':' behind -- that may be meant to begin a program") {
  const auto warnings = [](const Words& words) { return parsed<Launch>(words).warnings; };
  CHECK(
      warnings({"-np", "1", "--", "a", ":", "-n", "1", "--", "b"}) ==
      Words{
          "':' behind -- is an argument of 'a' and begins no other program; leave -- out if it is "
          "to begin one"});
  CHECK(warnings({"-np", "1", "a", ":", "-np", "1", "--", "b", ":", "-np", "1", "c"}).size() == 1);
  CHECK(warnings({"-np", "1", "--", "a", ":", "b", "-np"}).empty());
  CHECK(warnings({"-np", "1", "--", "a", ":"}).empty());
}

TEST_CASE("What is wrong with one of several programs") {
  CHECK(error_of({"-np", "2", "./a", ":", "./b"}) ==
        "program 2 (./b): -np is missing; each program behind ':' needs its number of ranks");
  CHECK(error_of({"-H", "a:2", "./a", ":", "-np", "1", "./b"}) ==
        "program 1 (./a): -np is missing; each of several programs needs it");
  CHECK(error_of({"-np", "2", "./a", ":", "-np", "1", "-H", "b", "./b"}) ==
        "program 2 (./b): -H is for the whole job; put it before the first program");
  CHECK(error_of({"-np", "2", "./a", ":", "-np", "1", "b", ":"})
            .find("no program behind ':' number 2") == 0);
  CHECK(error_of({"-np", "2", "./a", ":", "-np", "x", "./b"}) ==
        "program 2 (./b): -np: expected a whole number from 1 to 1000000, found 'x'");
  CHECK(error_of({"-np", "2", "./a", ":", "-npp", "1", "./b"}).find("program 2: unknown option") ==
        0);
  CHECK(error_of({"-np", "2", "--min-np", "1", "./a", ":", "-np", "1", "./b"})
            .find("several programs cannot be used with elastic jobs") == 0);
  CHECK(error_of({"-np", "2", "--mpi", "./a", ":", "-np", "1", "./b"})
            .find("several programs cannot be used with --mpi") == 0);
  CHECK(error_of({"-np", "2", "--smoke", ":", "-np", "1", "./b"}) ==
        "--smoke brings its own program, found ':'");
  CHECK(error_of({"-np", "900000", "./a", ":", "-np", "900000", "./b"}) ==
        "the programs ask for 1800000 ranks; a job has at most 1000000");
}

TEST_CASE("A file has the programs of a job, as mpirun's --app and Hydra's -configfile") {
  const std::string text =
      "text:# two programs\r\n\n-np 2 -x A=1 ./a --lr \"3 4\" \\\n  # no comment\n"
      "  -n 1 -m train : -np 3 ./c\n";
  for (const std::string name : {"--programs", "--app", "-app", "--configfile", "-configfile"}) {
    const JobSpec job = job_of({"-x", "A=0", "-x", "B=2", name, text});
    CHECK(job.num_proc == 6);
    CHECK(job.variables.empty());
    REQUIRE(job.programs.size() == 3);
    CHECK(job.programs[0].command == Words{"./a", "--lr", "3 4", "#", "no", "comment"});
    CHECK(job.command == job.programs[0].command);
    CHECK(job.programs[0].variables == std::vector<EnvironmentVariable>{{"A", "1"}, {"B", "2"}});
    CHECK(job.programs[1].command == Words{"python3", "-m", "train"});
    CHECK(job.programs[1].ranks == 1);
    CHECK(job.programs[2].ranks == 3);
    CHECK(job.programs[2].variables == std::vector<EnvironmentVariable>{{"A", "0"}, {"B", "2"}});
  }
  const JobSpec one = job_of({"-H", "a:4", "-np", "2", "-x", "A=1", "--app", "text:-np 2 ./a"});
  CHECK(one.programs.empty());
  CHECK(one.num_proc == 2);
  CHECK(one.command == Words{"./a"});
  CHECK(one.variables == std::vector<EnvironmentVariable>{{"A", "1"}});
}

TEST_CASE("What is wrong with a file of programs") {
  const auto error_in = [](const std::string& text) { return error_of({"--app", "text:" + text}); };
  const auto after_path = [&](const std::string& text) {
    const std::string message = error_in(text);
    REQUIRE(message.find("text:" + text) == 0);
    return message.substr(5 + text.size());
  };
  CHECK(after_path("./a") == ":1: -np is missing; each program needs its number of ranks");
  CHECK(after_path("#\n-np 2 ./a : ./b") ==
        ":2: -np is missing; each program needs its number of ranks");
  CHECK(after_path("-np 1 ./a\n\n-np 2 -host b ./b") ==
        ":3: -host is for the whole job; put it on the command line");
  CHECK(after_path("-np 1 ./a\n-np 2 -H b ./b") ==
        ":2: -H is for the whole job; put it on the command line");
  CHECK(after_path("-np 1 ./a\n-np x ./b") ==
        ":2: -np: expected a whole number from 1 to 1000000, found 'x'");
  CHECK(after_path("-np 1") == ":1: no program; expected: -np N program [arguments]");
  CHECK(after_path("-np 1 ./a :") == ":1: no program; expected: -np N program [arguments]");
  CHECK(after_path("-np 1 './a").find(":1: ") == 0);
  CHECK(after_path("# none\n") ==
        ": no program; expected lines such as: -np N program [arguments]");
  CHECK(error_of({"--app", "absent"}).find("--programs: ") == 0);
  CHECK(error_of({"--app", "text:-np 1 a", "b"}) ==
        "--programs text:-np 1 a has the programs of the job, found 'b' behind it");
  CHECK(error_of({"--app", "text:-np 1 a", ":", "-np", "1", "b"}) ==
        "--programs cannot be used with ':'");
  CHECK(error_of({"-np", "3", "--app", "text:-np 1 a\n-np 1 b"}) ==
        "-np 3: the programs of the file ask for 2 ranks; leave -np out");
  CHECK(error_of({"-m", "--app", "text:-np 1 a"}) ==
        "--module is for a line of --programs text:-np 1 a");
  CHECK(error_of({"--smoke", "--app", "text:-np 1 a"}) ==
        "--smoke and --app cannot be used together");
  CHECK(error_of({"--min-np", "1", "-np", "1", "--app", "text:-np 1 a"})
            .find("several programs cannot be used with elastic jobs") == 0);
  CHECK(error_of({"--mpi", "--app", "text:-np 1 a"})
            .find("several programs cannot be used with --mpi") == 0);
}

TEST_CASE("A file says what which ranks run, as srun --multi-prog") {
  const auto job_in = [](const Words& options, const std::string& text) {
    Words words = options;
    words.insert(words.end(), {"--multi-prog", "text:" + text});
    return job_of(words);
  };
  const JobSpec job =
      job_in({"-np", "8", "-x", "A=1"},
             "# of the job\n4-6 host %q%\n1,7 echo task:%t\n0,2 \\\necho '%o 1'\n* rest");
  CHECK(job.num_proc == 8);
  CHECK(job.variables.empty());
  std::vector<std::pair<Words, int>> found;
  for (const Program& program : job.programs) {
    found.emplace_back(program.command, program.ranks);
    CHECK(program.variables == std::vector<EnvironmentVariable>{{"A", "1"}});
  }
  CHECK(found == std::vector<std::pair<Words, int>>{{{"echo", "0 1"}, 1},
                                                    {{"echo", "task:1"}, 1},
                                                    {{"echo", "1 1"}, 1},
                                                    {{"rest"}, 1},
                                                    {{"host", "%q%"}, 3},
                                                    {{"echo", "task:7"}, 1}});
  CHECK(job.command == Words{"echo", "0 1"});
  // The lines say how many ranks there are; the same words for all are one program.
  const JobSpec one = job_in({"-x", "A=1"}, "0-2 ./a\n3 ./a");
  CHECK(one.num_proc == 4);
  CHECK(one.programs.empty());
  CHECK(one.command == Words{"./a"});
  CHECK(one.variables.size() == 1);
  CHECK(job_in({"-np", "3"}, "1 b %o\n* a %o").programs[2].command == Words{"a", "1"});
}

TEST_CASE("What is wrong with the file of --multi-prog") {
  const auto after_path = [](const std::string& text, const Words& options = {"-np", "4"}) {
    Words words = options;
    words.insert(words.end(), {"--multi-prog", "text:" + text});
    const std::string message = error_of(words);
    REQUIRE(message.find("text:" + text) == 0);
    return message.substr(5 + text.size());
  };
  CHECK(after_path("0-3") == ":1: no program; expected: RANKS program [arguments]");
  CHECK(after_path("0-2 a") ==
        ": no program for rank 3; a line that begins with * is for the rest");
  CHECK(after_path("0-4 a") == ":1: rank 4 is not in a job of 4 ranks");
  CHECK(after_path("0-3 a\n2 b") == ":2: rank 2 has a program already, in text:0-3 a\n2 b:1");
  CHECK(after_path("* a\n#\n* b") == ":3: '*' stands in text:* a\n#\n* b:1 already");
  CHECK(after_path("* a", {}) == ":1: '*' is for the rest of the ranks, and -np is missing");
  CHECK(after_path("x a").find(":1: column 1: expected ranks such as 0,4-7") == 0);
  CHECK(after_path("").find(": no program; expected lines such as") == 0);
  CHECK(after_path("0-999999 a %t", {}) ==
        ": more than 10000 programs; %t and %o make one for each rank");
  CHECK(after_path("0-1000000 a", {}) == " asks for 1000001 ranks; a job has at most 1000000");
  CHECK(error_of({"-np", "2", "--multi-prog"}) ==
        "--multi-prog: expected one file in place of the program");
  CHECK(error_of({"-np", "2", "--multi-prog", "a", "b"}) ==
        "--multi-prog: expected one file in place of the program, found 'b' behind it");
  CHECK(error_of({"-np", "2", "--multi-prog", "a", ":", "-np", "1", "b"}) ==
        "--multi-prog cannot be used with ':'");
}

TEST_CASE("A rankfile places every rank") {
  const JobSpec job = job_of({"--rankfile", "ranks", "x"});
  CHECK(job.num_proc == 2);
  CHECK(format_host_list(job.hosts) == "b:1,a:1");
  CHECK(job_of({"-rf", "ranks", "-H", "a:2,b:2", "x"}).seats ==
        std::vector<RankSeat>{{1, "0"}, {0, "1"}});
  CHECK(job_of({"-rf", "ranks", "-np", "1", "a", ":", "-np", "1", "b"}).seats.size() == 2);
  CHECK(error_of({"-rf", "ranks", "-np", "1", "a", ":", "-np", "2", "b"}) ==
        "-np asks for 3 ranks, and ranks has lines for 2");
  CHECK(job_of({"--map-by", "rankfile:FILE=ranks", "x"}).num_proc == 2);
  CHECK(error_of({"--map-by", "rankfile:ranks", "x"}) ==
        "--map-by: expected rankfile:file=FILE, found 'rankfile:ranks'");
  CHECK(error_of({"--map-by", "rankfile:file=", "x"}).find("--map-by: expected rankfile") == 0);
  CHECK(error_of({"--map-by", "rankfile:file=ranks", "-rf", "ranks", "x"}) ==
        "--rankfile cannot be used with --map-by rankfile, which places each rank");
  CHECK(error_of({"-rf", "none", "x"}).find("--rankfile: opening none") == 0);
  CHECK(error_of({"-rf", "ranks", "--bind", "core", "x"}).find("cannot be used together") !=
        std::string::npos);
  for (const Words& rivals :
       {Words{"--map-by", "node"}, Words{"-N", "1"}, Words{"-np", "2", "--min-np", "1"},
        Words{"--mpi"}, Words{"--listen", "any"}}) {
    Words words{"-rf", "ranks"};
    words.insert(words.end(), rivals.begin(), rivals.end());
    words.emplace_back("x");
    INFO(words[2]);
    CHECK(error_of(words).find("cannot be used with") != std::string::npos);
  }
}

TEST_CASE("Some of the hosts, and some of their GPUs") {
  const JobSpec job = job_of({"-H", "a:4,b:4,c:4", "--include", "a:1,3@b", "x"});
  CHECK(format_host_list(job.hosts) == "a:2,b:4");
  CHECK(job.hosts[0].gpus == std::vector<int>{1, 3});
  CHECK(format_host_list(job_of({"--include", "localhost:0,2", "x"}).hosts) == "localhost:2");
  CHECK(format_host_list(
            job_of({"-H", "a,b", "--slots-per-host", "4", "--exclude", "a:0@b", "x"}).hosts) ==
        "a:3");
  CHECK(job_of({"-np", "3", "--include", "localhost", "x"}).hosts.empty());
  // --nnodes and -N count what is left.
  CHECK(format_host_list(
            job_of({"-H", "a:2,b:2,c:2", "--exclude", "a", "--nnodes", "1", "x"}).hosts) == "b:2");
  CHECK(error_of({"-H", "a:4", "--include", "a", "--exclude", "a", "x"}) ==
        "--include and --exclude cannot be used together");
  CHECK(error_of({"-H", "a:4", "--include", "a:0", "-x", "CUDA_VISIBLE_DEVICES=1", "x"})
            .find("cannot be used with -x") != std::string::npos);
  CHECK(error_of({"-H", "a:4", "--include", "a:0", "-np", "1", "x", ":", "-np", "1", "-x",
                  "CUDA_VISIBLE_DEVICES=1", "y"})
            .find("cannot be used with -x") != std::string::npos);
  for (const Words& rivals :
       {Words{"-np", "1", "--min-np", "1"}, Words{"--mpi"}, Words{"--listen", "any"}}) {
    Words words{"-H", "a:4", "--include", "a:0"};
    words.insert(words.end(), rivals.begin(), rivals.end());
    words.emplace_back("x");
    CHECK(error_of(words).find("cannot be used") != std::string::npos);
  }
  CHECK(
      job_of({"-H", "a:4,b:4", "--include", "a", "--min-np", "1", "-np", "1", "x"}).hosts.size() ==
      1);
}

TEST_CASE("Placement, and ranks that fail alone") {
  CHECK(job_of({"-np", "2", "x"}).map_by == MapBy::kSlot);
  CHECK(job_of({"-np", "2", "--map-by", "node", "x"}).map_by == MapBy::kNode);
  CHECK(job_of({"-np", "2", "--keep-going", "x"}).keep_going);
  CHECK(job_of({"-np", "2", "--mpi", "--map-by", "slot", "x"}).map_by == MapBy::kSlot);
  CHECK(error_of({"-np", "2", "--map-by", "core", "x"})
            .find("--map-by: expected slot, node or rankfile:file=FILE") == 0);
  CHECK(error_of({"-np", "2", "--mpi", "--map-by", "node", "x"})
            .find("--map-by cannot be used with --mpi") == 0);
  CHECK(error_of({"-np", "2", "--min-np", "1", "--keep-going", "x"})
            .find("--keep-going cannot be used with elastic jobs") == 0);
}

TEST_CASE("Jobs that are started again") {
  CHECK_FALSE(job_of({"-np", "2", "x"}).restart);
  CHECK_FALSE(job_of({"-np", "2", "--restarts", "0", "x"}).restart);
  const JobSpec job = job_of({"-np", "2", "--restarts", "3", "--restart-delay", "1m", "x"});
  REQUIRE(job.restart);
  CHECK(job.restart->most == 3);
  CHECK(job.restart->delay == std::chrono::minutes(1));
  CHECK(job.restart->attempt == 0);
  CHECK(job_of({"-np", "2", "--max_restarts=2", "x"}).restart->most == 2);
  CHECK(error_of({"-np", "2", "--restarts", "1", "--min-np", "1", "x"})
            .find("--restarts cannot be used with elastic jobs") == 0);
  CHECK(error_of({"-np", "2", "--restarts", "1", "--mpi", "x"})
            .find("--restarts cannot be used with --mpi") == 0);
  CHECK(error_of({"-np", "2", "--restarts", "1", "--listen", "any", "x"})
            .find("--restarts cannot be used with --listen") == 0);
  CHECK(error_of({"-np", "2", "-x", "HORA_RESTART=1", "x"}).find("cannot be set") !=
        std::string::npos);
  CHECK(parsed<Launch>({"-np", "2", "--restart-delay", "1", "x"}).warnings ==
        Words{"--restart-delay has no effect without --restarts"});
}

TEST_CASE("The way to the hosts") {
  CHECK(job_of({"-np", "1", "--rsh", "kubectl exec -i 'my pod'", "x"}).rsh_command ==
        Words{"kubectl", "exec", "-i", "my pod"});
  CHECK(job_of({"-np", "1", "--rsh", "ssh", "x"}).transport == "command");
  CHECK(job_of({"-np", "1", "--transport", "ssh", "x"}).transport == "ssh");
  CHECK(error_of({"-np", "1", "--transport", "command", "x"}).find("needs --rsh") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--transport", "ssh", "--rsh", "r", "x"}).find("--rsh is for") == 0);
  CHECK(error_of({"-np", "1", "--rsh", "a 'b", "x"}).find("not closed") != std::string::npos);
  CHECK(error_of({"-np", "1", "--rsh", "  ", "x"}).find("only blanks") != std::string::npos);
  const Variables kubernetes{{"OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"}};
  CHECK(job_of({"-np", "1", "x"}, kubernetes).rsh_command == Words{"/etc/mpi/kubexec.sh"});
  CHECK(job_of({"-np", "1", "--transport", "ssh", "x"}, kubernetes).rsh_command.empty());
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

  // Whoever names hosts gets these, in the usual way; --engine says that the engine starts there.
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
  CHECK(format_host_list(job_of({"--slots-per-host", "4", "x"}, slurm).hosts) == "n1:1,n2:1");
}

TEST_CASE("An elastic job follows the engine unless somebody has chosen hosts") {
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
  const Variables volcano{{"MPI_HOST", "w-0,w-1"}};
  const JobSpec job = job_of({"x"}, volcano);
  CHECK(job.hosts_come_late);
  CHECK(job.start_timeout.count() == 600'000);
  CHECK(job_of({"--start-timeout", "20", "x"}, volcano).start_timeout.count() == 20'000);
  Variables both = volcano;
  both["HOROVOD_START_TIMEOUT"] = "45";
  CHECK(job_of({"x"}, both).start_timeout.count() == 45'000);
  // Whoever names hosts means those that are there.
  CHECK_FALSE(job_of({"-H", "a:2", "x"}, volcano).hosts_come_late);
  CHECK(job_of({"--engine", "volcano", "-H", "w-0:2", "x"}, volcano).hosts_come_late);
  CHECK_FALSE(job_of({"x"}, {{"PBS_JOBID", "1"}, {"PBS_NODEFILE", "nodes"}}).hosts_come_late);
}

TEST_CASE("The start timeout: option, then environment, then 30 seconds") {
  const Variables variables{{"HOROVOD_START_TIMEOUT", "45"}};
  CHECK(job_of({"-np", "1", "x"}).start_timeout.count() == 30'000);
  CHECK(job_of({"-np", "1", "x"}, variables).start_timeout.count() == 45'000);
  CHECK(job_of({"-np", "1", "--start-timeout", "5", "x"}, variables).start_timeout.count() ==
        5'000);
  CHECK(job_of({"-np", "1", "--start-timeout", "0", "x"}, variables).start_timeout.count() ==
        45'000);
  CHECK(error_of({"-np", "1", "x"}, {{"HOROVOD_START_TIMEOUT", "soon"}})
            .find("$HOROVOD_START_TIMEOUT: expected a time") == 0);
}

TEST_CASE("Odd values pass unharmed through the parser") {
  for (const std::string value : {"{}", "[a,b]", "%%", "a=b", "-x", "\"q\"", "a b", "--", "\xff"}) {
    CHECK(job_of({"-np", "1", "--output-filename=" + value, "x"}).output_directory == value);
  }
  CHECK(job_of({"-np", "1", "x", "{}", "", "a\nb"}).command == Words{"x", "{}", "", "a\nb"});
}

TEST_CASE("A first word that is no program is answered with what was meant") {
  for (const auto& [words, answer] : std::vector<std::pair<Words, std::string>>{
           {{"doctr", "-H", "localhost"}, "did you mean 'horarun doctor'?"},
           {{"cahce", "ls"}, "did you mean 'horarun cache'?"},
           {{"explian", "E_USAGE"}, "did you mean 'horarun explain'?"},
           {{"timelin", "merge"}, "did you mean 'horarun timeline'?"},
           {{"smoke"}, "did you mean --smoke?"},
           {{"status"},
            "-np is missing; give the number of ranks, or hosts with slots, such as -H "
            "a:2,b:2 (there is no verb or program 'status' here)"},
           {{"--verbose", "doctor"}, "'doctor' is a verb only as the first word: horarun doctor"},
           {{"run", "true"}, "takes the place of 'run': horarun -np N true"},
           {{"launch", "train.py"}, "of 'launch': horarun -np N python3 train.py"},
           {{"accelerate", "launch", "a.py"}, "of 'accelerate': horarun -np N python3 a.py"},
           {{"mpirun", "-x", "A", "b"}, "of 'mpirun': horarun -np N python3 train.py"},
           {{"--doctor"}, "did you mean 'horarun doctor'?"},
           {{"--explain", "E_CWD"}, "did you mean 'horarun explain'?"},
           {{"-?"}, "did you mean --help?"},
           {{"help", "doctr"}, "did you mean doctor?"},
           {{"help", "doctor", "x"}, "expected: horarun help [verb]"},
           {{"cache", "list"}, "found 'list'; did you mean 'horarun cache ls'?"},
           {{"cache", "rm"}, "found 'rm'; did you mean 'horarun cache clean'?"},
           {{"doctor", "a", "b"}, "unexpected argument 'a'; name hosts with -H a,b"}}) {
    INFO(words.front());
    CHECK(error_of(words).find(answer) != std::string::npos);
  }
  for (const Words& words : {Words{"true"}, {"train.py"}, {"./x"}, {"-m", "doctr"}}) {
    CHECK(error_of(words).find("-np is missing") == 0);
  }
}

TEST_CASE("Where ranks are asked for, every word is a program") {
  for (const char* word : {"doctor", "version", "help", "doctr", "torchrun", "status"}) {
    CHECK(job_of({"-np", "1", word}).command == Words{word});
    CHECK(job_of({"-H", "a:1", word}).command == Words{word});
  }
  // Also without an option, where the environment has the number and PATH the program.
  CHECK(parsed<ShowText>({"version"}, {{"HORARUN_NUM_PROC", "1"}}).text == HORA_VERSION "\n");
  CHECK(job_of({"version", "x"}, {{"HORARUN_NUM_PROC", "1"}}).command == Words{"version", "x"});
}

TEST_CASE("help and version are verbs") {
  CHECK(parsed<ShowText>({"help"}).text == help_text(kVerbLaunch, false));
  CHECK(parsed<ShowText>({"help", "doctor"}).text == help_text(kVerbDoctor, false));
  CHECK(parsed<ShowText>({"help", "version"}).text == help_text(kVerbLaunch, false));
  CHECK(parsed<ShowText>({"version"}).text == HORA_VERSION "\n");
}

TEST_CASE("Help says what an option does for its verb") {
  CHECK(help_text(kVerbDoctor, false).find("(default: 5s)") != std::string::npos);
  CHECK(help_text(kVerbKubernetes, false).find("(default: 600s)") != std::string::npos);
  CHECK(help_text(kVerbKubernetes, true).find("every slot of the given") == std::string::npos);
  CHECK(help_text(kVerbLaunch, false).find("HOROVOD_START_TIMEOUT or 30s") != std::string::npos);
}

TEST_CASE("An abbreviation is named with its option") {
  CHECK(error_of({"--cache"}) ==
        "--cache (short for --cache-capacity) needs a value: --cache-capacity N");
  CHECK(error_of({"--cycle", "x", "true"}).find("--cycle (short for --cycle-time-ms): ") == 0);
  // What is an option of jobs is no abbreviation of one of doctor's.
  CHECK(
      error_of({"doctor", "--ship", "x"}) ==
      "unknown option '--ship'; it is an option of jobs, and horarun doctor takes the hosts alone");
}

TEST_CASE("An option of another verb is told from a typo") {
  CHECK(error_of({"doctor", "-np", "8"}) ==
        "unknown option '-np'; it is an option of jobs, and horarun doctor takes the hosts alone");
  CHECK(error_of({"cache", "ls", "--smoke"}).find("'--smoke'; it is an option of jobs") !=
        std::string::npos);
  CHECK(error_of({"rendezvous", "-np", "8"}).find("'-np'; it is an option of jobs") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--older-than", "3d", "true"}) ==
        "unknown option '--older-than' here; it belongs to 'horarun cache clean'");
  CHECK(error_of({"k8s", "-H", "a:2", "true"}).find("pods for the job: --workers N") !=
        std::string::npos);
}

TEST_CASE("Habits of srun are told from mistakes") {
  CHECK(error_of({"-N", "2", "-n", "4", "x"}).find("srun's -N is --nnodes") != std::string::npos);
  CHECK(error_of({"-N", "2", "-H", "a,b", "-n", "5", "x"}).find("gives 2 hosts") !=
        std::string::npos);
  CHECK(job_of({"-N", "2", "-H", "a,b", "-n", "4", "x"}).num_proc == 4);
  CHECK(error_of({"-p", "debug", "x"}).find("a partition goes to sbatch") != std::string::npos);
  CHECK(error_of({"-p", "0", "x"}).find("partition") == std::string::npos);
}

TEST_CASE("Other launchers' names for the same are taken") {
  CHECK(format_host_list(job_of({"--host", "a:2,b", "x"}).hosts) == "a:2,b");
  CHECK(format_host_list(job_of({"-host", "a:2", "x"}).hosts) == "a:2");
  CHECK(format_host_list(job_of({"-machinefile", "hosts", "x"}).hosts) == "a:2,b:2");
  CHECK(job_of({"--ntasks", "3", "x"}).num_proc == 3);
  CHECK(job_of({"--ntasks=3", "x"}).num_proc == 3);
}

TEST_CASE("Any words give a command or a message") {
  std::mt19937 random(5);
  Words pool{"-np", "2",         "-H",    "a:2",   "--",  "",           "-",
             "--x", "-hostfile", "hosts", "cache", "ls",  "rendezvous", "explain",
             "x",   "--ship",    "=",     "-np=",  "--=", "-H=",        "--help=al"};
  for (const OptionRow& row : option_table()) pool.emplace_back(shown_name(row));
  for (int round = 0; round < 3000; ++round) {
    Words words;
    for (std::size_t k = random() % 6; k > 0; --k) words.push_back(pool[random() % pool.size()]);
    const auto command = parse(words);
    if (!command) CHECK_FALSE(command.error().message.empty());
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
  CHECK(job.pods->patience == std::chrono::minutes(30));
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

}  // namespace
}  // namespace hora::launcher
