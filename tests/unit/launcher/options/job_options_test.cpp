// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/job_options.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

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

TEST_CASE("The operations that a site has set for mpirun are not those of the ranks") {
  const auto warnings = [](Words words, const char* value) {
    words.insert(words.begin(), {"-np", "1"});
    words.emplace_back("x");
    return parsed<Launch>(words, {{"HOROVOD_CPU_OPERATIONS", value}}).warnings;
  };
  CHECK(warnings({}, "CCL") ==
        Words{"HOROVOD_CPU_OPERATIONS=CCL is set here and not passed on; --cpu-operations asks for "
              "MPI or oneCCL"});
  CHECK(warnings({}, "gloo").empty());
  CHECK(warnings({"--mpi"}, "mpi").empty());
  CHECK(warnings({"--cpu-operations", "mpi"}, "CCL").empty());
  CHECK(warnings({"-x", "HOROVOD_CPU_OPERATIONS"}, "mpi").empty());
  CHECK(warnings({}, "Gloo").empty());
  CHECK(parsed<Launch>({"-np", "1", "x"}, {{"HOROVOD_CONTROLLER", "mpi"}}).warnings ==
        Words{"HOROVOD_CONTROLLER=mpi is set here and not passed on; --mpi starts the ranks with "
              "mpirun"});
}

TEST_CASE("-x with '*' passes on every variable whose name begins so") {
  const Variables here{
      {"NCCL_A", "1"}, {"NCCL_B", "2"}, {"NCC", "3"}, {"CUDA_VISIBLE_DEVICES", "0"}};
  const auto job = parsed<Launch>({"-np", "1", "-x", "NCCL_*", "-x", "CUDA_*", "x"}, here);
  CHECK(job.warnings.empty());
  CHECK(job.job.variables.size() == 3);
  CHECK(variable(job.job, "NCCL_B") == "2");
  CHECK(variable(job.job, "CUDA_VISIBLE_DEVICES") == "0");
  // Of a name that comes twice the last value counts, also that of here.
  CHECK(variable(job_of({"-np", "1", "-x", "NCCL_A=7", "-x", "NCCL_*", "x"}, here), "NCCL_A") ==
        "1");
  CHECK(parsed<Launch>({"-np", "1", "-x", "FOO_*", "x"}, here).warnings ==
        Words{"-x: no variable FOO_* is set here, so it is not passed on"});
  for (const char* text : {"*", "FOO*BAR", "FOO_*=1", "*_A"}) {
    CHECK(error_of({"-np", "1", "-x", text, "x"}, here) ==
          "-x: expected a name, or the first letters of names and '*' such as NCCL_*, found '" +
              std::string(text) + "'");
  }
}

std::string knob(const JobSpec& job, std::string_view name) {
  for (const auto& variable : job.knobs) {
    if (variable.name == name) return variable.value;
  }
  return "unset";
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
  CHECK(parsed<Launch>({"-np", "1", "--wdir", "/w", "true"}).job.working_directory == "/w");
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

TEST_CASE("What lines of the output look like, and which are printed") {
  CHECK_FALSE(job_of({"-np", "2", "x"}).own_prefix);
  CHECK(job_of({"-np", "2", "--output-prefix", "{rank} ", "x"}).own_prefix->fill({7}, "", {}) ==
        "7 ");
  CHECK(error_of({"-np", "2", "--output-prefix", "{x}", "x"}).find("--output-prefix: column 1") ==
        0);
  for (const std::string option : {"--prefix-output-with-timestamp", "--no-prefix-output"}) {
    CHECK(error_of({"-np", "2", "--output-prefix", "a", option, "x"}).find("cannot be used") !=
          std::string::npos);
  }
  const LineFilter lines =
      job_of({"-np", "2", "--show-lines", "a", "--show-lines", "b", "--hide-lines", "c", "x"})
          .shown_lines;
  CHECK((lines.shows("a") && lines.shows("b") && !lines.shows("ac") && !lines.shows("d")));
  CHECK(error_of({"-np", "2", "--hide-lines", "(", "x"}).find("--hide-lines: '('") == 0);
}

TEST_CASE("When files of the output are rotated") {
  CHECK_FALSE(job_of({"-np", "1", "--output-filename", "o", "x"}).rotation);
  const JobSpec job =
      job_of({"-np", "1", "--output-filename", "o", "--output-max-size", "10M", "x"});
  CHECK((job.rotation->most_bytes == 10u << 20 && job.rotation->most_files == 5));
  CHECK(job_of({"-np", "1", "--output-filename", "o", "--output-max-size", "1K",
                "--output-max-files", "2", "x"})
            .rotation->most_files == 2);
  CHECK(error_of({"-np", "1", "--output-max-size", "0", "x"}).find("--output-max-size") == 0);
  CHECK(error_of({"-np", "1", "--output-max-files", "1", "x"}).find("--output-max-files") == 0);
}

TEST_CASE("A terminal for rank 0") {
  CHECK_FALSE(job_of({"-np", "2", "x"}).pty);
  CHECK(job_of({"-np", "2", "--pty", "x"}).pty);
  CHECK(job_of({"-np", "2", "--pty", "--stdin", "none", "x"}).pty);
  for (const Words& other :
       {Words{"--min-np", "2"}, {"--mpi"}, {"--detach"}, {"--progress"}, {"--stdin", "all"}}) {
    Words words{"-np", "4", "--pty"};
    words.insert(words.end(), other.begin(), other.end());
    words.push_back("x");
    CHECK(error_of(words).find("--pty cannot be used with ") == 0);
  }
}

TEST_CASE("Placement, and ranks that fail alone") {
  CHECK(job_of({"-np", "2", "x"}).map_by == MapBy::kSlot);
  CHECK(job_of({"-np", "2", "--map-by", "node", "x"}).map_by == MapBy::kNode);
  CHECK(job_of({"-np", "2", "--keep-going", "x"}).keep_going);
  CHECK(job_of({"-np", "2", "--mpi", "--map-by", "slot", "x"}).map_by == MapBy::kSlot);
  CHECK(error_of({"-np", "2", "--map-by", "core", "x"})
            .find("--map-by: expected slot, node or rankfile:file=FILE") == 0);
  for (const Words& without : {Words{"--report", "a.json"}, Words{"--on-stall", "kill"},
                               Words{"--timings"}, Words{"--progress"}, Words{"--detach"}}) {
    Words words{"-np", "1", "--mpi"};
    words.insert(words.end(), without.begin(), without.end());
    words.emplace_back("x");
    CHECK(error_of(words) == without.front() + " is not supported with --mpi");
  }
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

TEST_CASE("TF_CONFIG for the ranks") {
  const JobSpec job = job_of({"-np", "2", "--tf-config", "chief", "x"});
  REQUIRE(job.knobs.size() == 1);
  CHECK(job.knobs[0].name == "HORA_TF_CONFIG");
  CHECK(job.knobs[0].value == "chief");
  for (const Words& other : {Words{"--min-np", "1"}, Words{"--mpi"}, Words{"--runtime", "host"}}) {
    Words words{"-np", "2", "--tf-config=worker"};
    words.insert(words.end(), other.begin(), other.end());
    words.emplace_back("x");
    CHECK(error_of(words).find("--tf-config cannot be used with ") == 0);
  }
}

TEST_CASE("The backend of torch.distributed") {
  const JobSpec job = job_of({"-np", "2", "--torch-backend", "hora", "x"});
  REQUIRE(job.knobs.size() == 1);
  CHECK(job.knobs[0].name == "HORA_TORCH_BACKEND");
  CHECK(job.knobs[0].value == "hora");
  CHECK(error_of({"-np", "2", "--torch-backend", "gloo", "x"}).find("--torch-backend") !=
        std::string::npos);
  CHECK(job_of({"-np", "2", "--min-np", "1", "--torch-backend=hora", "x"}).elastic);
  for (const Words& other : {Words{"--mpi"}, Words{"--runtime", "host"}}) {
    Words words{"-np", "2", "--torch-backend=hora"};
    words.insert(words.end(), other.begin(), other.end());
    words.emplace_back("x");
    CHECK(error_of(words).find("--torch-backend cannot be used with ") == 0);
  }
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
  const Variables open_mpi_5{{"PRTE_MCA_plm_ssh_agent", "/etc/mpi/kubexec.sh"}};
  CHECK(job_of({"-np", "1", "x"}, open_mpi_5).rsh_command == Words{"/etc/mpi/kubexec.sh"});
  CHECK(job_of({"-np", "1", "--transport", "ssh", "x"}, kubernetes).rsh_command.empty());
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

}  // namespace
}  // namespace hora::launcher
