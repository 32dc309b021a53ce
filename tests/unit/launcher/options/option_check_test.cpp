// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_check.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/options/parsing.h"

namespace hora::launcher {
namespace {

TEST_CASE("Options are spelled as horovodrun takes them") {
  for (const Words& words :
       {Words{"-np", "3", "x"}, Words{"--num-proc", "3", "x"}, Words{"--num-proc=3", "x"},
        Words{"-np=3", "x"}, Words{"-np3", "x"}, Words{"-n", "3", "x"}, Words{"--num-p", "3", "x"},
        Words{"-np", "3", "-np", "3", "x"}}) {
    CHECK(job_of(words).num_proc == 3);
  }
  CHECK(job_of({"-np", "1", "-p2222", "x"}).ssh.port == 2222);
  CHECK(format_host_list(job_of({"-Ha:4,b:4", "x"}).hosts) == "a:4,b:4");
  CHECK(format_host_list(job_of({"-hostfile", "hosts", "x"}).hosts) == "a:2,b:2");
  CHECK(job_of({"-np", "1", "-prefix-timestamp", "x"}).prefix_timestamp);
  // An abbreviation that is unambiguous in horovodrun stays so next to our own options.
  CHECK(job_of({"-np", "1", "--disable", "--start", "7", "x"}).start_timeout.count() == 7000);
  CHECK(error_of({"--num", "3", "x"}) ==
        "--num is ambiguous; it could be --num-proc or --num-nccl-streams");
}

TEST_CASE("An abbreviation is named with its option") {
  CHECK(error_of({"--cache"}) ==
        "--cache (short for --cache-capacity) needs a value: --cache-capacity N");
  CHECK(error_of({"--cycle", "x", "true"}).find("--cycle (short for --cycle-time-ms): ") == 0);
  // An option of jobs is not an abbreviation of one of doctor's.
  CHECK(
      error_of({"doctor", "--ship", "x"}) ==
      "unknown option '--ship'; it is an option of jobs, and horarun doctor takes the hosts alone");
}

TEST_CASE("A program where a value is missing is reported before the program's own options") {
  CHECK(error_of({"-np", "2", "--pmi", "python3", "-c", "print()"}) ==
        "--pmi: expected none, pmix or pmi1, found 'python3'");
  CHECK(error_of({"--pmi", "none", "-c", "print()"}).find("unknown option '-c'") == 0);
}

TEST_CASE("An option of another verb is distinguished from a typo") {
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

TEST_CASE("Options of srun are distinguished from mistakes") {
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

TEST_CASE("A usage error names the option, what was found and what was expected") {
  CHECK(error_of({}).find("no program to run") == 0);
  CHECK(error_of({"-np", "2"}) ==
        "no program to run; expected: horarun [options] program [arguments]");
  CHECK(error_of({"x"}).find("-np is missing") == 0);
  CHECK(error_of({"-np", "x", "y"}) == "-np: expected a whole number from 1 to 1000000, found 'x'");
  CHECK(error_of({"--num-proc", "0", "y"}).find("--num-proc: expected") == 0);
  CHECK(error_of({"-np"}) == "-np needs a value: -np N");
  CHECK(error_of({"-np", "--verbose", "x"}) == "-np needs a value: -np N");
  // Words for mpirun that are also an option here are given with a '='.
  CHECK(error_of({"--mpi-args", "--tag-output", "x"}) ==
        "--mpi-args needs a value: --mpi-args=--tag-output");
  CHECK(job_of({"-np", "1", "--mpi", "--mpi-args=--tag-output", "x"}).by_mpirun);
  CHECK(error_of({"--mpi-args", "--", "x"}) == "--mpi-args needs a value: --mpi-args ARGS");
  CHECK(error_of({"-np", "-1", "x"}).find("found '-1'") != std::string::npos);
  CHECK(error_of({"-np", "1", "--output-filename=", "x"}).find("needs a value") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--verbose=yes", "x"}) == "--verbose takes no value, found 'yes'");
  CHECK(error_of({"-np", "1", "--hostfil", "x", "y"}).find("--hostfile: opening x") == 0);
  CHECK(error_of({"--hosfile", "x"}) == "unknown option '--hosfile'; did you mean --hostfile?");
  CHECK(error_of({"-nq", "2", "x"}).find("did you mean -np?") != std::string::npos);
  CHECK(error_of({"--completely-different"}) == "unknown option '--completely-different'");
  CHECK(error_of({"--oversubscibe", "x"}) ==
        "unknown option '--oversubscibe'; did you mean --oversubscribe? horarun calls this "
        "-H HOST:SLOTS (slots may be more than cores)");
  CHECK(error_of({"doctor", "--oversubscibe"}) == "unknown option '--oversubscibe'");
  CHECK(error_of({"-np", "1", "-H", "a:1", "--hostfile", "hosts", "x"}) ==
        "-H and --hostfile cannot be used together");
  CHECK(error_of({"-np", "1", "--torus-allreduce", "--no-torus-allreduce", "x"})
            .find("cannot be used together") != std::string::npos);
  CHECK(error_of({"-np", "1", "--log-level", "debug", "x"}).find("TRACE, DEBUG") !=
        std::string::npos);
  CHECK(error_of({"-np", "1", "--grace", "soon", "x"}) ==
        "--grace: expected a time up to 365d, such as 30, 30s, 1m30s or 500ms, found 'soon'");
  CHECK(error_of({"-np", "1", "--lease", "100ms", "x"}).find("at least 1s") != std::string::npos);
  CHECK(error_of({"-np", "1", "-p", "70000", "x"}).find("from 1 to 65535") != std::string::npos);
  // What the runtime would refuse in every rank.
  for (const char* name : {"--cycle-time-ms", "--cache-capacity", "--gloo-timeout-seconds",
                           "--stall-check-warning-time-seconds"}) {
    CHECK(error_of({"-np", "1", name, "1000000001", "x"}).find(", found '1000000001'") !=
          std::string::npos);
  }
  CHECK(error_of({"-np", "1", "--gloo-timeout-seconds", "0", "x"}) ==
        "--gloo-timeout-seconds: expected a whole number from 1 to 1000000, found '0'");
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

}  // namespace
}  // namespace hora::launcher
