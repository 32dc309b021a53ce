// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/settings.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>

#include "launcher/options/command_line.h"
#include "launcher/options/completion.h"
#include "launcher/options/config_file.h"
#include "launcher/options/usage_text.h"
#include "launcher/text/text.h"
#include "tests/support/catch.h"
#include "tests/support/generated_page.h"

namespace hora::launcher {
namespace {

TEST_CASE("a misspelt variable of the runtime is reported, with the one that was meant") {
  CHECK(misspelt_runtime_variables({"HORA_BACKEND"}) ==
        std::vector<std::string>{
            "HORA_BACKEND is set, and nothing reads it; did you mean HORA_BACKENDS?"});
  CHECK(misspelt_runtime_variables({"PATH", "HORA_SIMD", "HORA_JOB_ID", "HORA_BUILD", "HORA_NP"})
            .empty());
}

TEST_CASE("no variable that Hora or its tests set is taken for a misspelt one") {
  for (const char* name : {"HORA_FLIGHT_RECORDER",
                           "HORA_JOB_DIRECTORY",
                           "HORA_KNOWS_STATE",
                           "HORA_RENDEZVOUS_TLS",
                           "HORA_RENDEZVOUS_TOKEN",
                           "HORA_RESTART",
                           "HORA_ROUND",
                           "HORA_STACKS",
                           "HORA_STACKS_SIGNAL",
                           "HORA_WORKER",
                           "HORA_AGENT_MARK",
                           "HORA_GPU",
                           "HORA_SEED",
                           "HORA_SEEDS",
                           "HORA_ROOTS",
                           "HORA_ONLY",
                           "HORA_FAULT",
                           "HORA_AT_ONCE",
                           "HORA_PACKAGES",
                           "HORA_PLACES_BY_MACHINE"}) {
    INFO(name);
    CHECK(misspelt_runtime_variables({name}).empty());
  }
}

TEST_CASE("every setting of the runtime's page is one of the variables") {
  std::ifstream file(HORA_SOURCE_DIR "/docs/reference/runtime.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::size_t begin = page.find("\n## Settings");
  const std::string table = page.substr(begin, page.find("\n## ", begin + 1) - begin);
  const std::regex row("\n\\| `(HORA_[A-Z_]+)`");
  int rows = 0;
  for (std::sregex_iterator at(table.begin(), table.end(), row), end; at != end; ++at, ++rows) {
    const std::string name = (*at)[1];
    INFO(name);
    CHECK(std::count(runtime_variables().begin(), runtime_variables().end(), name) == 1);
  }
  CHECK(rows > 5);
}

using Files = std::map<std::string, std::string>;

struct World {
  Files files;
  std::map<std::string, std::string, std::less<>> variables;

  ProcessInputs inputs() const {
    ProcessInputs out;
    out.variable = [this](std::string_view name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    out.read_file = [this](const std::string& path) -> Result<std::string> {
      const auto found = files.find(path);
      if (found == files.end()) return errno_error(ENOENT, "opening " + path);
      return found->second;
    };
    out.read_own_file = out.read_file;
    out.variable_names = [this] {
      std::vector<std::string> names;
      for (const auto& [name, value] : variables) names.push_back(name);
      return names;
    };
    return out;
  }

  Result<Command> run(const std::vector<std::string>& words) const {
    std::vector<const char*> argv{"horarun"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    return parse_command_line(static_cast<int>(argv.size()), argv.data(), inputs());
  }

  JobSpec job(const std::vector<std::string>& words) const {
    auto command = run(words);
    if (!command) FAIL(command.error().message);
    REQUIRE(std::holds_alternative<Launch>(*command));
    return std::get<Launch>(*command).job;
  }

  std::string error(const std::vector<std::string>& words) const {
    const auto command = run(words);
    REQUIRE_FALSE(command);
    CHECK(command.error().code == ErrorCode::kUsage);
    return command.error().message;
  }

  std::string shown(std::vector<std::string> words) const {
    words.insert(words.begin(), "--show-config");
    const auto command = run(words);
    if (!command) FAIL(command.error().message);
    return std::get<ShowText>(*command).text;
  }
};

TEST_CASE("What configuration says of programs is for each of several") {
  const World world{{{"hora.yaml", "horarun:\n  num-proc: 4\n  env: [A=file, B=file]\n"},
                     {"other.yaml", "horarun:\n  env: C=3\n"}},
                    {}};
  const auto names = [](const Program& program) {
    std::string text;
    for (const auto& variable : program.variables)
      text += variable.name + "=" + variable.value + " ";
    return text;
  };
  const JobSpec job =
      world.job({"-x", "A=1", "./a", ":", "-np", "1", "./b", ":", "-np", "1", "-x", "C=3", "./c"});
  CHECK(job.num_proc == 6);
  CHECK(names(job.programs[0]) == "A=1 ");
  CHECK(names(job.programs[1]) == "A=file B=file ");
  CHECK(names(job.programs[2]) == "C=3 ");
  CHECK(names(world.job({"--config-file", "other.yaml", "./a", ":", "-np", "1", "./b"})
                  .programs[1]) == "C=3 ");
  CHECK(names(world.job({"--no-config", "-np", "1", "./a", ":", "-np", "1", "./b"}).programs[1])
            .empty());
  CHECK(world.error({"./a", ":", "./b"}).find("program 2 (./b): -np is missing") == 0);
}

std::string knob(const JobSpec& job, std::string_view name) {
  for (const auto& variable : job.knobs) {
    if (variable.name == name) return variable.value;
  }
  return "unset";
}

TEST_CASE("Every key of horovodrun's configuration file sets its variable") {
  World world;
  world.files["c.yaml"] =
      "params:\n  fusion_threshold_mb: 32\n  cycle_time_ms: 2.5\n  cache_capacity: 7\n"
      "  hierarchical_allreduce: true\n  hierarchical_allgather: false\n  torus_allreduce: no\n"
      "autotune:\n  enabled: true\n  log_file: a.csv\n  warmup_samples: 1\n  steps_per_sample: 2\n"
      "  bayes_opt_max_samples: 3\n  gaussian_process_noise: 0.5\n"
      "timeline:\n  filename: t.json\n  mark_cycles: true\n"
      "stall_check:\n  enabled: false\n  warning_time_seconds: 5\n  shutdown_time_seconds: 6\n"
      "library_options:\n  mpi_threads_disable: true\n  num_nccl_streams: 2\n  thread_affinity: 1\n"
      "  gloo_timeout_seconds: 9\n"
      "logging:\n  level: INFO\n  with_timestamp: false\n";
  const JobSpec job = world.job({"--config-file", "c.yaml", "-np", "1", "true"});
  const std::pair<const char*, const char*> expected[] = {
      {"HOROVOD_FUSION_THRESHOLD", "33554432"},
      {"HOROVOD_CYCLE_TIME", "2.5"},
      {"HOROVOD_CACHE_CAPACITY", "7"},
      {"HOROVOD_HIERARCHICAL_ALLREDUCE", "1"},
      {"HOROVOD_HIERARCHICAL_ALLGATHER", "0"},
      {"HOROVOD_TORUS_ALLREDUCE", "0"},
      {"HOROVOD_AUTOTUNE", "1"},
      {"HOROVOD_AUTOTUNE_LOG", "a.csv"},
      {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "1"},
      {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "2"},
      {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "3"},
      {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.5"},
      {"HOROVOD_TIMELINE", "t.json"},
      {"HOROVOD_TIMELINE_MARK_CYCLES", "1"},
      {"HOROVOD_STALL_CHECK_DISABLE", "1"},
      {"HOROVOD_STALL_CHECK_TIME_SECONDS", "5"},
      {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "6"},
      {"HOROVOD_MPI_THREADS_DISABLE", "1"},
      {"HOROVOD_NUM_NCCL_STREAMS", "2"},
      {"HOROVOD_THREAD_AFFINITY", "1"},
      {"HOROVOD_GLOO_TIMEOUT_SECONDS", "9"},
      {"HOROVOD_LOG_LEVEL", "INFO"},
      {"HOROVOD_LOG_HIDE_TIME", "1"},
  };
  for (const auto& [name, value] : expected) {
    INFO(name);
    CHECK(knob(job, name) == value);
  }
}

TEST_CASE("The section horarun takes the long options") {
  World world;
  world.files["c.yaml"] =
      "horarun:\n  hosts: [a:2, b:2]\n  start_timeout: 1m\n  ssh-port: 2222\n  verbose: true\n"
      "  network-interfaces: [eth0, 10.0.0.0/8]\n  ship: [x.py, y.py]\n";
  const JobSpec job = world.job({"--config-file=c.yaml", "true"});
  CHECK(job.hosts.size() == 2);
  CHECK(job.start_timeout.count() == 60'000);
  CHECK(job.ssh.port == 2222);
  CHECK(job.verbose);
  CHECK(job.network_interfaces == std::vector<std::string>{"eth0", "10.0.0.0/8"});
  CHECK(job.ship_files == std::vector<std::string>{"x.py", "y.py"});
}

TEST_CASE("The order is flag, named file, environment, project, user, system") {
  World world;
  world.variables = {{"XDG_CONFIG_HOME", "/u"}};
  const std::string key = "horarun: {fan-out: ";
  const auto fan_out = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-np", "1", "true"});
    return world.job(words).fan_out;
  };
  CHECK(fan_out({}) == 64);
  world.files["/etc/hora/config.yaml"] = key + "1}";
  CHECK(fan_out({}) == 1);
  world.files["/u/hora/config.yaml"] = key + "2}";
  CHECK(fan_out({}) == 2);
  world.files["hora.yaml"] = key + "3}";
  CHECK(fan_out({}) == 3);
  world.variables["HORARUN_FAN_OUT"] = "4";
  CHECK(fan_out({}) == 4);
  world.files["named.yaml"] = key + "5}";
  CHECK(fan_out({"--config-file", "named.yaml"}) == 5);
  world.files["second.yaml"] = key + "6}";
  CHECK(fan_out({"--config-file", "named.yaml", "--config-file", "second.yaml"}) == 6);
  CHECK(fan_out({"--fan-out", "7", "--config-file", "named.yaml"}) == 7);
  CHECK(fan_out({"--config-file", "named.yaml", "--fan-out", "7"}) == 7);
  CHECK(fan_out({"--no-config"}) == 4);
}

TEST_CASE("'~/' is the home folder in paths, where no shell has seen it") {
  World world;
  world.variables = {{"HOME", "/home/me"}, {"HORARUN_REPORT", "~/job.json"}};
  world.files["/home/me/c.yaml"] = "horarun:\n  ssh-identity-file: ~/.ssh/key\n  ship: [~/a~/b]\n";
  JobSpec job = world.job({"-np", "1", "--config-file=~/c.yaml", "--output-filename=~/out", "--rsh",
                           "~/reach", "x", "~/y"});
  CHECK(job.output_directory == "/home/me/out");
  CHECK(job.ssh.identity_file == "/home/me/.ssh/key");
  CHECK(job.report_files == std::vector<std::string>{"/home/me/job.json"});
  CHECK(job.ship_files == std::vector<std::string>{"/home/me/a~/b"});
  CHECK(job.rsh_command == std::vector<std::string>{"~/reach"});
  CHECK(job.command == std::vector<std::string>{"x", "~/y"});
  CHECK(world.job({"-np", "1", "--output-filename=~bob/out", "x"}).output_directory == "~bob/out");
}

TEST_CASE("Each long name of an option has a variable, and they may not differ") {
  World world;
  world.variables = {{"HORARUN_NP", "3"}};
  CHECK(world.job({"true"}).num_proc == 3);
  world.variables["HORARUN_NUM_PROC"] = "2";
  CHECK(world.error({"true"}).find("contradict each other") != std::string::npos);
  world.variables["HORARUN_NUM_PROC"] = "";
  CHECK(world.job({"true"}).num_proc == 3);
  world.variables = {{"HORARUN_NP", "x"}};
  CHECK(world.error({"true"}).starts_with("$HORARUN_NP: expected a whole number"));
}

TEST_CASE("What a file holds does not reach the terminal by an error") {
  World world;
  world.files["hora.yaml"] = "a: \"\\\xff\"\n";
  CHECK(world.error({"true"}).find("unknown escape character: ?") != std::string::npos);
}

TEST_CASE("A higher source hides what contradicts it") {
  World world;
  world.files["hora.yaml"] =
      "horarun: {hosts: 'a:2', verbose: true}\nparams: {hierarchical_allreduce: true, "
      "cycle_time_ms: 9}\n";
  world.files["hosts"] = "b slots=3\n";
  CHECK(world.job({"--hostfile", "hosts", "true"}).hosts.front().name == "b");
  CHECK(knob(world.job({"--no-hierarchical-allreduce", "true"}),
             "HOROVOD_HIERARCHICAL_ALLREDUCE") == "0");
  world.variables["HORARUN_VERBOSE"] = "false";
  CHECK_FALSE(world.job({"true"}).verbose);
  // The ranks inherit it; a file must not override what the user has exported.
  world.variables["HOROVOD_CYCLE_TIME"] = "3";
  CHECK(knob(world.job({"true"}), "HOROVOD_CYCLE_TIME") == "unset");
  world.variables["HOROVOD_HIERARCHICAL_ALLREDUCE"] = "0";
  CHECK(knob(world.job({"true"}), "HOROVOD_HIERARCHICAL_ALLREDUCE") == "unset");
}

TEST_CASE("A mistake in a file has a place and a suggestion") {
  World world;
  const auto error = [&](const std::string& text) {
    world.files["c.yaml"] = text;
    return world.error({"--config-file", "c.yaml", "-np", "1", "true"});
  };
  CHECK(error("params:\n  fusion_treshold_mb: 3\n") ==
        "c.yaml:2:3: unknown key 'fusion_treshold_mb' in section 'params'; did you mean "
        "fusion_threshold_mb?");
  CHECK(error("parms: {}\n") == "c.yaml:1:1: unknown key 'parms'; did you mean params?");
  CHECK(error("params:\n  cache_capacity: many\n") ==
        "c.yaml:2:19: params.cache_capacity: expected a whole number from 0 to 16777216, found "
        "'many'");
  CHECK(error("params:\n  cache_capacity: 1\n  cache_capacity: 2\n") ==
        "c.yaml:3:3: 'cache_capacity' in section 'params' is given twice, before at c.yaml:2:3");
  CHECK(error("params: 3\n") == "c.yaml:1:9: expected keys with values in section 'params'");
  CHECK(error("- a\n") == "c.yaml:1:1: expected sections such as 'params:'");
  CHECK(error("controller: nccl\n") ==
        "c.yaml:1:13: controller: expected gloo or mpi, found 'nccl'");
  CHECK(error("autotune: {enabled: maybe}\n") ==
        "c.yaml:1:21: autotune.enabled: expected true or false, found 'maybe'");
  CHECK(error("horarun: {hots: a}\n") ==
        "c.yaml:1:11: unknown key 'hots' in section 'horarun'; did you mean hosts?");
  CHECK(error("horarun: {help: true}\n").find("for the command line only") != std::string::npos);
  CHECK(error("horarun: {fan-out: [1, 2]}\n").find("expected one value, found a list") !=
        std::string::npos);
  CHECK(error("params: {cache_capacity: }\n").find("found none") != std::string::npos);
  CHECK(error("a: b: c\n").substr(0, 9) == "c.yaml:1:");
  CHECK(error("a: 1\n---\nb: 2\n").find("one YAML document") != std::string::npos);
  CHECK(error("horarun:\n\tnp: 1\n").find("begins with a tab") != std::string::npos);
  CHECK(error("horarun: [\n").find("begins with a tab") == std::string::npos);
  // In this the YAML library finds one empty document after the other, for ever.
  CHECK(error("- a\n,").find("one YAML document") != std::string::npos);
  CHECK(world.error({"--config-file", "none.yaml", "true"}).find("none.yaml") != std::string::npos);
}

TEST_CASE("Ignored entries and variables are reported, also together with an error") {
  World world{{{"hora.yaml", "np: 2\n"}}, {{"HORARUN_TIMEOT", "1"}, {"HORARUN_ODD", "1"}}};
  const std::string in_file = "hora.yaml:1:1: 'np' belongs under 'horarun:'; it is ignored here";
  const std::string in_name = "$HORARUN_TIMEOT names no option; did you mean HORARUN_TIMEOUT?";
  const auto command = world.run({"-np", "1", "true"});
  REQUIRE(command);
  CHECK(std::get<Launch>(*command).warnings ==
        std::vector<std::string>{"$HORARUN_ODD names no option; it is ignored", in_name, in_file});
  for (const std::string& text : {world.error({"./true"}), world.shown({})}) {
    CHECK(text.find("\n  " + in_file) != std::string::npos);
    CHECK(text.find("\n  " + in_name) != std::string::npos);
  }
  CHECK(world.shown({"--json"}).find("\"warnings\"") != std::string::npos);
}

TEST_CASE("A merge key brings the entries that a section does not have itself") {
  World world;
  world.files["c.yaml"] =
      "params: &base {cache_capacity: 7}\nautotune: {enabled: false}\n"
      "horarun:\n  np: 3\n  <<: [{np: 2, fan-out: 5}, {fan-out: 6, verbose: true}]\n";
  const JobSpec merged = world.job({"--config-file", "c.yaml", "true"});
  CHECK(merged.num_proc == 3);
  CHECK(merged.fan_out == 5);
  CHECK(merged.verbose);
  world.files["c.yaml"] = "base: &base {<<: {fan-out: 4}}\nhorarun: {np: 2, <<: *base}\n";
  CHECK(world.job({"--config-file", "c.yaml", "true"}).fan_out == 4);
  const auto error = [&](const std::string& text) {
    world.files["c.yaml"] = text;
    return world.error({"--config-file", "c.yaml", "-np", "1", "true"});
  };
  CHECK(error("horarun: {<<: 3}\n") ==
        "c.yaml:1:15: <<: expected an alias of a section, such as *base");
  CHECK(error("horarun: {<<: {hots: a}}\n") ==
        "c.yaml:1:16: unknown key 'hots' in section 'horarun'; did you mean hosts?");
  std::string many = "horarun: {<<: [";
  for (int i = 0; i < 101; ++i) many += "{np: 1},";
  CHECK(error(many + "]}\n").find("too many sections are merged") != std::string::npos);
}

TEST_CASE("A value of several numbers may be a list") {
  World world;
  world.files["c.yaml"] =
      "library_options: {thread_affinity: [0, 8]}\n"
      "horarun: {np: 2, min-np: 1, blacklist-cooldown-range: [5, 60]}\n";
  const JobSpec job = world.job({"--config-file", "c.yaml", "true"});
  CHECK(job.elastic->cooldown_seconds == std::make_pair(5, 60));
  CHECK(knob(job, "HOROVOD_THREAD_AFFINITY") == "0,8");
  world.files["c.yaml"] = "horarun: {np: 2, min-np: 1, blacklist-cooldown-range: [60, 5]}\n";
  CHECK(world.error({"--config-file", "c.yaml", "true"})
            .find("the smaller one first, found '60 5'") != std::string::npos);
}

TEST_CASE("An empty file sets nothing") {
  World world;
  for (const char* text : {"", "# nothing\n", "---\n", "params:\n", "params: {}\n"}) {
    world.files["c.yaml"] = text;
    CHECK(world.job({"--config-file", "c.yaml", "-np", "2", "true"}).knobs.empty());
  }
}

TEST_CASE("--show-config says where each value comes from") {
  World world;
  world.variables = {{"HORARUN_GRACE", "9s"}, {"HOROVOD_CYCLE_TIME", "4"}};
  world.files["hora.yaml"] = "horarun:\n  lease: 20s\n";
  CHECK(world.shown({"-np", "2", "true"}) ==
        "--num-proc 2                              command line\n"
        "--grace 9s                                $HORARUN_GRACE\n"
        "--lease 20s                               hora.yaml:2:10: horarun.lease\n"
        "HOROVOD_CYCLE_TIME=4                      $HOROVOD_CYCLE_TIME\n"
        "Every other option has its default (horarun --help=all).\n"
        "Files, the first counts most:\n"
        "  hora.yaml (read)\n"
        "  /etc/hora/config.yaml (not there)\n");
  CHECK(world.shown({"--json", "-np", "2", "true"}).find("\"origin\": \"$HORARUN_GRACE\"") !=
        std::string::npos);
}

TEST_CASE("Completions and help know every verb") {
  for (const VerbRow& verb : verbs()) {
    INFO(verb.name);
    const World world;
    CHECK(complete_words({""}, world.inputs()).find("\n" + std::string(verb.name) + "\t") !=
          std::string::npos);
    const bool is_option = verb.name == "help" || verb.name == "version";
    CHECK((is_option || help_text(kVerbLaunch, false).find("horarun " + std::string(verb.name)) !=
                            std::string::npos));
  }
}

TEST_CASE("Completions know every option, and help stays short") {
  const World world;
  const std::string of_jobs = complete_words({"-"}, world.inputs());
  for (const OptionRow& row : option_table()) {
    if (row.has(kHidden)) continue;
    INFO(long_name(row));
    CHECK((of_jobs.find("\n" + std::string(long_name(row)) + "\t") != std::string::npos) ==
          ((row.verbs & kVerbLaunch) != 0));
  }
  for (const char* shell : {"bash", "zsh", "fish"}) CHECK(completion_script(shell));
  CHECK_FALSE(completion_script("tcsh"));
  const std::string help = help_text(kVerbLaunch, false);
  CHECK(std::count(help.begin(), help.end(), '\n') <= 80);
}

TEST_CASE("The reference of the configuration file is that of the table of keys", "[accept]") {
  test::expect_in_page("reference/configuration.md", config_reference());
}

}  // namespace
}  // namespace hora::launcher
