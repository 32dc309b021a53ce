// SPDX-License-Identifier: Apache-2.0
// hora-agent: started on every host by a transport. "hora-agent agent" speaks the agent protocol on
// standard input and output; nothing else reads this command line.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "launcher/agent/agent.h"
#include "launcher/agent/container_host.h"
#include "launcher/agent/shim.h"
#include "launcher/plan/binding.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/store/cache_clean.h"
#include "launcher/store/directories.h"
#include "launcher/store/own_image.h"
#include "launcher/text/text.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/limits.h"
#include "rendezvous/os/process_end.h"

namespace {

using namespace hora::launcher;

int usage(const char* problem) {
  std::fprintf(
      stderr,
      "hora-agent: %s\n"
      "usage: hora-agent agent [--parts LIST] [--cache DIR] [--local-bundle DIR]\n"
      "                        [--probe] [--report-sha] [--cleans-cache] [--launcher PID]\n"
      "                        [--cpus LIST] [--cache-max-age SECONDS] [--cache-max-size BYTES]\n"
      "                        [--container IMAGE [--container-runtime NAME] [--container-args "
      "ARGS] [--wdir DIR]]\n"
      "       hora-agent list-cache [--host NAME] [--json]\n"
      "       hora-agent clean-cache [--host NAME] [--json] [--max-age SECONDS] [--max-size BYTES] "
      "[--dry-run]\n"
      "       hora-agent --version\n"
      "horarun starts it on each host. Do not run it by hand.\n",
      problem);
  return kExitUsage;
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// Descriptors that the starter left open.
void close_leaked() {
  if (::syscall(SYS_close_range, 3u, ~0u, 0u) == 0) return;
  // Linux < 5.9. The listing's own is closed already, which does no harm.
  for (const std::string& name : hora::os::names_in("/proc/self/fd")) {
    if (const int fd = std::atoi(name.c_str()); fd > STDERR_FILENO) ::close(fd);
  }
}

// Standard input and output are the stream to the launcher and must be there. Standard error may
// be closed; then later files must not get its number.
bool settle_standard_streams() {
  const bool stream = is_open(STDIN_FILENO) && is_open(STDOUT_FILENO);
  while (!stream || !is_open(STDERR_FILENO)) {
    // 0, 1 and 2 stay open across exec.
    const int fd = ::open("/dev/null", O_RDWR);  // NOLINT(android-cloexec-open)
    if (fd < 0) return false;
    if (fd > STDERR_FILENO) {
      ::close(fd);
      break;
    }
  }
  close_leaked();
  return stream;
}

// Signals come through signalfd, so all are blocked, and none is inherited as ignored (nohup).
void settle_signals() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
}

// What list-cache and clean-cache print: text, of which each line may begin with the host, or a
// JSON object a line.
struct OutputFormat {
  std::string host;
  bool json = false;
};

// The beginning of a JSON object.
std::string json_prefix(const OutputFormat& format) {
  return "{\"host\":" + json_text(format.host);
}

void print_line(const OutputFormat& format, const std::string& text) {
  if (format.json) {
    std::printf("%s,\"message\":%s}\n", json_prefix(format).c_str(), json_text(text).c_str());
  } else {
    std::printf("%s%s%s\n", format.host.c_str(), format.host.empty() ? "" : ": ", text.c_str());
  }
}

// Calls `print` with each line about each directory, or with `nothing` where there is none about
// any; goes on when one is not fit.
template <typename Action, typename Print>
int for_each_cache(const char* nothing, Action action, Print print) {
  int exit_code = kExitOk;
  bool is_silent = true;
  for (const std::string& place : cache_places()) {
    const auto lines = action(place);
    if (!lines) {
      std::fprintf(stderr, "hora-agent: %s\n", lines.error().message.c_str());
      exit_code = kExitFailed;
      continue;
    }
    if (!lines->empty()) is_silent = false;
    for (const std::string& line : *lines) print(line);
  }
  if (is_silent && exit_code == kExitOk) print(nothing);
  return exit_code;
}

// "--host NAME" and "--json" before the other words.
OutputFormat parse_output_format(std::span<const char* const>& words) {
  OutputFormat format;
  if (words.size() >= 2 && std::string_view(words[0]) == "--host") {
    format.host = words[1];
    words = words.subspan(2);
  }
  if (!words.empty() && std::string_view(words[0]) == "--json") {
    format.json = true;
    words = words.subspan(1);
  }
  return format;
}

int list_caches(std::span<const char* const> words) {
  const OutputFormat format = parse_output_format(words);
  if (!words.empty()) return usage("list-cache takes --host and --json alone");
  const auto print = [&format](const std::string& text) { print_line(format, text); };
  if (!format.json) return for_each_cache("nothing is kept", list_cache, print);
  // An empty list is not a line.
  return for_each_cache(
      "",
      [&format](const std::string& place) {
        return list_cache_as_json(place, json_prefix(format));
      },
      [](const std::string& line) {
        if (!line.empty()) std::puts(line.c_str());
      });
}

int clean_caches(std::span<const char* const> words) {
  const OutputFormat format = parse_output_format(words);
  const auto options = parse_clean_options(words);
  if (!options) return usage(options.error().message.c_str());
  const CleanRequest request{cache_limits(options->max_age_s, options->max_bytes), options->dry_run,
                             false, std::nullopt};
  return for_each_cache(
      "nothing to remove",
      [&request](const std::string& place) { return clean_cache(place, request); },
      [&format](const std::string& text) { print_line(format, text); });
}

}  // namespace

int main(int argc, char** argv) {
  hora::os::exit_when_out_of_resources("hora-agent", kExitLauncher);
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("hora-agent %s\n", HORA_VERSION);
    return kExitOk;
  }
  const auto words = std::span<char*>(argv, static_cast<std::size_t>(argc));
  if (argc >= 2 && std::string_view(argv[1]) == "list-cache") return list_caches(words.subspan(2));
  if (argc >= 2 && std::string_view(argv[1]) == "clean-cache") {
    return clean_caches(words.subspan(2));
  }
  if (argc < 2 || std::string_view(argv[1]) != "agent") return usage("expected 'agent'");
  auto options = parse_agent_options(words.subspan(2));
  if (!options) return usage(options.error().message.c_str());
  // It was started on one of them, that of its launcher.
  std::unique_ptr<OneCpu> place;
  if (!options->cpus.empty()) {
    const auto everywhere = parse_cpu_list(options->cpus, "--cpus", options->cpus);
    if (!everywhere) return usage(everywhere.error().message.c_str());
    place = OneCpu::inherited(*everywhere);
  }
  if (!settle_standard_streams()) {
    std::fprintf(stderr, "hora-agent: standard input or output is closed\n");
    return kExitLauncher;
  }
  // Early, since nothing continues a shim that is stopped before this line.
  be_continued_by(STDIN_FILENO);
  auto image = verify_own_image();
  if (!image) {
    std::fprintf(stderr, "hora-agent: %s\n", image.error().message.c_str());
    return kExitCannotExecute;
  }
  options->own_sha256 = std::move(*image);
  settle_signals();
  if (options->contained) {
    announce_contained();
    options->launcher = 0;  // a number of another namespace
  } else if (!options->container.empty()) {
    return run_in_container(*options, words.subspan(2));
  }
  // Away from the terminal's Ctrl-C, and no mount kept busy. A session leader stays what it is.
  (void)::setsid();
  (void)!::chdir("/");
  const auto run = [&options](ShimState& share, hora::os::Fd shim_alive,
                              std::unique_ptr<OneCpu> agents) {
    return run_agent(*options, share, std::move(shim_alive), std::move(agents));
  };
  return run_with_shim(std::move(place), run);
}
