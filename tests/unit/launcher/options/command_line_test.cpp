// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/command_line.h"

#include <random>

#include "launcher/options/option_table.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("The program begins with the first word that is not an option") {
  const JobSpec job = job_of({"-np", "2", "python", "x.py", "-np", "5", "--verbose"});
  CHECK(job.num_proc == 2);
  CHECK(job.command == Words{"python", "x.py", "-np", "5", "--verbose"});
  CHECK_FALSE(job.verbose);
  CHECK(job_of({"-np", "2", "--", "-x", "--"}).command == Words{"-x", "--"});
  CHECK(job_of({"-np", "2", "-"}).command == Words{"-"});
}

TEST_CASE("Options that take lists add up, others contradict each other") {
  const JobSpec job = job_of({"-H",      "a:2",
                              "--hosts", "b",
                              "-H=a",    "--report",
                              "r.json",  "--report",
                              "r.html",  "--engine-args",
                              "--mem=0", "--engine-args",
                              "'-C x'",  "--show-ranks",
                              "0",       "--show-ranks",
                              "1-2",     "-x",
                              "A=1",     "-x",
                              "B=1",     "--timeout",
                              "5s",      "--timeout",
                              "5s",      "x"});
  CHECK(format_host_list(job.hosts) == "a:3,b");
  CHECK(job.report_files == Words{"r.json", "r.html"});
  CHECK(job_of({"--hostfile", "hosts", "--hostfile", "text:z slots=9", "x"}).hosts.back().slots ==
        9);
  CHECK(job_of({"-H", "a:4,b:4", "--include", "a:0", "--include", "b:2", "x"}).hosts[1].gpus ==
        std::vector{2});
  CHECK(job_of({"--mpi", "-np", "1", "--mpi-args", "-a b", "--mpi-args", "-c", "x"}).mpi_args ==
        "-a b -c");
  CHECK(error_of({"-np", "2", "--num-proc", "4", "x"}) ==
        "-np 2 and --num-proc 4 contradict each other; give one of them");
  CHECK(error_of({"-np", "1", "--grace=1s", "--grace=2s", "x"}) ==
        "--grace 1s and --grace 2s contradict each other; give one of them");
  CHECK(job_of({"-np", "1", "-x", "A=1", "-x", "A=2", "x"}).variables.back().value == "2");
  CHECK(error_of({"--join", "hora://s3cret", "--join", "f"}).find("s3cret") == std::string::npos);
  CHECK(error_of({"-np", "1", "x", ":", "-np", "1", "-np", "2", "y"}).find("contradict") !=
        std::string::npos);
  CHECK(error_of({"x"}, {{"HORARUN_NP", "2"}, {"HORARUN_NUM_PROC", "4"}}) ==
        "$HORARUN_NUM_PROC 4 and $HORARUN_NP 2 contradict each other; give one of them");
  // Of two sources the higher one counts.
  CHECK(job_of({"-np", "2", "x"}, {{"HORARUN_NP", "4"}}).num_proc == 2);
}

TEST_CASE("What prints help or the version runs no program") {
  CHECK(error_of({"-h", "a:2", "x"}) ==
        "-h prints the help and runs nothing, found 'a:2'; hosts are given with -H");
  CHECK(error_of({"-np", "2", "-v", "x"}).find("--verbose explains each step") !=
        std::string::npos);
  CHECK(error_of({"--version", "true"}) ==
        "--version prints the version and runs nothing, found 'true'");
  CHECK(error_of({"-np", "2", "--help", "true"}) ==
        "--help prints the help and runs nothing, found 'true'");
  CHECK(error_of({"--check-build", "true"}) == "--check-build runs nothing, found 'true'");
  for (const char* verb : {"doctor", "cache", "bundle-report"}) {
    CHECK(error_of({verb, "-h", "a"}) ==
          "-h prints the help and runs nothing, found 'a'; hosts are given with -H");
  }
  for (const char* verb : {"k8s", "timeline", "explain", "rendezvous", "completion"}) {
    CHECK(error_of({verb, "-h", "a"}) == "-h prints the help and runs nothing, found 'a'");
    CHECK_FALSE(parsed<ShowText>({verb, "--help"}).text.empty());
  }
  CHECK(error_of({"timeline", "merge", "a", "-h"}).find("found 'a'") != std::string::npos);
  CHECK(error_of({"help", "--bogus"}).find("'--bogus'") != std::string::npos);
  CHECK_FALSE(parsed<ShowText>({"-h"}).text.empty());
}

TEST_CASE("An error is an event where --json stands before or behind it") {
  const auto asks = [](Words words, const Variables& variables = {}) {
    words.insert(words.begin(), "horarun");
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    ProcessInputs inputs;
    inputs.variable = [&variables](std::string_view name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    return asks_for_events(static_cast<int>(argv.size()), argv.data(), inputs);
  };
  CHECK(asks({"--json", "--bogus", "x"}));
  CHECK(asks({"--bogus", "3", "--json", "x"}));
  CHECK(asks({"-np", "two", "--json", "x"}));
  CHECK(asks({"cache", "sl", "--json"}));
  CHECK(asks({"--bogus", "x"}, {{"HORARUN_JSON", "true"}}));
  CHECK_FALSE(asks({"-np", "2", "x", "--json"}));
  CHECK_FALSE(asks({"-np", "2", "--", "--json"}));
}

TEST_CASE("Under the name horovodrun it behaves as users of that name expect") {
  for (const char* name : {"horovodrun", "/usr/bin/horovodrun", "./horovodrun"}) {
    INFO(name);
    CHECK(std::get<ShowText>(*parse({"--version"}, {}, name)).text == "0.28.1\n");
    const std::string help = std::get<ShowText>(*parse({"--help"}, {}, name)).text;
    CHECK(help.find("standard input (default: none)") != std::string::npos);
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
  // After an option these words are programs.
  CHECK(job_of({"-np", "1", "cache"}).command == Words{"cache"});
}

TEST_CASE("Verbs for running jobs take the number of one") {
  CHECK(parsed<AskJobs>({"jobs"}).action == AskJobs::Action::kList);
  CHECK(parsed<AskJobs>({"jobs", "--json"}).json);
  const auto cancel = parsed<AskJobs>({"cancel", "4711"});
  CHECK((cancel.action == AskJobs::Action::kCancel && cancel.job == 4711));
  CHECK(parsed<AskJobs>({"top"}).job == 0);
  for (const auto& words : {std::vector<std::string>{"top", "4711", "--once", "--json"},
                            std::vector<std::string>{"top", "--once", "--json", "4711"}}) {
    const auto top = parsed<AskJobs>(words);
    CHECK((top.action == AskJobs::Action::kTop && top.job == 4711 && top.once && top.json));
  }
  CHECK(error_of({"top", "x"}) ==
        "expected: horarun top [JOB], a number that horarun jobs shows, found 'x'");
  CHECK(parsed<AskJobs>({"top", "--prometheus"}).prometheus);
  CHECK(error_of({"jobs", "--once"}) == "--once is an option of horarun top alone");
  CHECK(error_of({"jobs", "--prometheus"}) == "--prometheus is an option of horarun top alone");
  CHECK(error_of({"top", "--prometheus", "--json"}) ==
        "--prometheus and --json exclude each other");
  CHECK(parsed<AskJobs>({"attach", "4711"}).action == AskJobs::Action::kAttach);
  CHECK(error_of({"jobs", "4711"}) == "unexpected argument '4711'");
  for (const char* word : {"0", "-1", "x", "99999999999", ""}) {
    INFO(word);
    CHECK_FALSE(parse({"cancel", word}));
  }
  CHECK(error_of({"cancel"}) == "expected: horarun cancel JOB, a number that horarun jobs shows");
  CHECK(error_of({"attach", "1", "2"}).ends_with("shows, found '1 2'"));
  CHECK(error_of({"jobs", "-H", "a"}).find("horarun jobs, top, attach and cancel do not take") !=
        std::string::npos);
  CHECK(parsed<Launch>({"-np", "1", "--detach", "x"}).detach);
  CHECK(parsed<Smoke>({"-np", "1", "--detach", "--smoke"}).detach);
  CHECK_FALSE(parsed<Launch>({"-np", "1", "x"}).detach);
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

TEST_CASE("An option without effect is reported, not ignored") {
  const auto launch = parsed<Launch>({"-np", "1", "--autotune-log-file", "l", "x"});
  CHECK(launch.job.knobs.empty());
  CHECK(launch.warnings == Words{"--autotune-log-file has no effect without --autotune"});
  CHECK(parsed<Launch>({"-H", "a", "--rsh", "ssh", "-p", "22", "-i", "k", "x"}).warnings ==
        Words{"-p has no effect with --rsh", "-i has no effect with --rsh"});
  CHECK(parsed<Launch>({"-H", "a", "--rsh", "ssh", "--mpi", "-p", "22", "x"}).warnings.empty());
  CHECK(parsed<Launch>({"-np", "1", "--log-hide-timestamp", "x"}).warnings.size() == 1);
  CHECK(parsed<Launch>({"-np", "1", "--timeline-mark-cycles", "--timeline-filename", "t", "x"})
            .warnings.empty());
}

TEST_CASE("A module is run by Python") {
  CHECK(job_of({"-np", "1", "-m", "package.train", "--lr", "3"}).command ==
        Words{"python3", "-m", "package.train", "--lr", "3"});
  CHECK(job_of({"-np", "1", "--module", "train"}).command == Words{"python3", "-m", "train"});
  CHECK(error_of({"-np", "1", "-m"}).find("no program to run") == 0);
  CHECK(error_of({"-np", "1", "-m", "--smoke"}).find("--smoke brings") == 0);
}

TEST_CASE("Odd values pass unharmed through the parser") {
  for (const std::string value : {"{}", "[a,b]", "%%", "a=b", "-x", "\"q\"", "a b", "--", "\xff"}) {
    CHECK(job_of({"-np", "1", "--output-filename=" + value, "x"}).output_directory == value);
  }
  CHECK(job_of({"-np", "1", "x", "{}", "", "a\nb"}).command == Words{"x", "{}", "", "a\nb"});
}

TEST_CASE("Any words give a command or a message") {
  std::mt19937 random(5);
  Words pool{"-np",       "2",     "-H",    "a:2", "--",         "",         "-",      "--x",
             "-hostfile", "hosts", "cache", "ls",  "rendezvous", "explain",  "cancel", "x",
             "--ship",    "=",     "-np=",  "--=", "-H=",        "--help=al"};
  for (const OptionRow& row : option_table()) pool.emplace_back(shown_name(row));
  for (int round = 0; round < 3000; ++round) {
    Words words;
    for (std::size_t k = random() % 6; k > 0; --k) words.push_back(pool[random() % pool.size()]);
    const auto command = parse(words);
    if (!command) CHECK_FALSE(command.error().message.empty());
  }
}

}  // namespace
}  // namespace hora::launcher
