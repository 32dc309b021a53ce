// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/rank_exit_text.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <system_error>

#include "launcher/failures/failure_code.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

std::string interpreter_text(const RankExit& exit) {
  if (exit.errnum == ENOEXEC) {
    return "its #! line names no interpreter, or is longer than the kernel reads";
  }
  if (exit.interpreter.empty()) return "its interpreter does not exist";
  std::string text = "its interpreter " + quote(exit.interpreter) + " does not exist";
  // The kernel takes the carriage return for a part of the name.
  if (exit.interpreter.back() == '\r') {
    text += ": the line ends in a carriage return, as lines of Windows files do";
  }
  return text;
}

// Loaders have fixed names, by the C library and the processor.
std::string_view built_for(std::string_view loader) {
  if (loader.find("/ld-musl-") != std::string_view::npos) return "musl, as of Alpine Linux";
  if (loader == "/lib/ld-linux.so.2") return "glibc and 32-bit x86";
  if (loader.substr(0, 17) == "/lib/ld-linux-arm" || loader == "/lib/ld-linux.so.3") {
    return "glibc and 32-bit ARM";
  }
  if (loader.substr(0, 12) == "/lib/ld-linu" || loader.substr(0, 14) == "/lib64/ld-linu") {
    return "glibc";
  }
  return {};
}

std::string loader_text(const RankExit& exit) {
  std::string text = "its dynamic loader " + quote(exit.interpreter) + " does not exist";
  const std::string_view library = built_for(exit.interpreter);
  if (library.empty()) return text + ": it was built for another system's folders";
  return text + ": it was built for " + std::string(library);
}

}  // namespace

std::string start_failure_text(const RankExit& exit) {
  if (exit.stage == SpawnStage::kNone) return {};
  std::string text(spawn_stage_name(exit.stage));
  if (!exit.program.empty()) text += " " + visible_line(exit.program);
  text += ": ";
  if (exit.stage == SpawnStage::kInterpreter) {
    return text + (exit.code == failure::kLoader ? loader_text(exit) : interpreter_text(exit));
  }
  if (exit.stage == SpawnStage::kSearch && exit.errnum == 0) return text + "not found in PATH";
  if (exit.stage == SpawnStage::kExecute && exit.errnum == E2BIG) {
    return text + "the environment and the arguments are larger than this machine allows";
  }
  return text + std::generic_category().message(exit.errnum);
}

std::string how_it_ended(const RankExit& exit) {
  if (exit.stage != SpawnStage::kNone) return "could not be started: " + start_failure_text(exit);
  if (exit.signal != 0) {
    return "was killed by " + signal_name(exit.signal) + (exit.core_dumped ? " (core dumped)" : "");
  }
  return "exited with code " + std::to_string(exit.exit_code);
}

std::string_view without_margin(std::string_view line) {
  if (line.substr(0, 5) == "[rank") {
    const std::size_t end = line.find("]: ");
    if (end != std::string_view::npos && end < 12) return line.substr(end + 3);
  }
  const std::size_t bar = line.find_first_not_of(' ');
  if (bar != std::string_view::npos && line.substr(bar, 2) == "| ") return line.substr(bar + 2);
  return line;
}

constexpr std::size_t kNone = std::string_view::npos;

bool continues_own_frame(std::string_view line, bool is_own) {
  if (!line.starts_with("  File \"")) return is_own && line.starts_with("    ");
  for (const char* folder : {"/python/", "-packages/"}) {
    for (const char* package : {"hora/", "horovod/"}) {
      if (line.find(std::string(folder) + package) != std::string_view::npos) return true;
    }
  }
  return false;
}

std::optional<int> rank_that_left(std::string_view last_stderr) {
  constexpr std::string_view kName = "rank ";
  // A rank that could not go on is named like lines of a log may be, so only an exception counts.
  for (const char* said : {" has shut down", " is gone: ", "): "}) {
    const std::size_t end = last_stderr.rfind(said);
    const std::size_t start = end == kNone ? kNone : last_stderr.rfind(kName, end);
    if (start == kNone) continue;
    const std::string_view name =
        last_stderr.substr(start + kName.size(), end - start - kName.size());
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    const std::string_view host = name.substr(digits);
    const bool is_name = host.empty() || host.starts_with(", by which ") ||
                         (host.starts_with(" (") && host.find(' ', 1) == kNone);
    const std::size_t line = last_stderr.rfind('\n', end) + 1;
    const bool is_exception = last_stderr.substr(line, start - line).find("Error: ") != kNone;
    if (!is_name || (said[0] == ')' && !is_exception)) continue;
    if (const auto rank = parse_int<int>(name.substr(0, digits))) return rank;
  }
  return std::nullopt;
}

namespace {

using Lines = std::span<const std::string_view>;

// A longer text after an error is what the program did next: it went on.
constexpr std::size_t kLongestMessage = 30;
constexpr std::size_t kLongestWithoutError = 12;
// "bind: Address already in use", and then "ERROR: cannot start the server".
constexpr std::size_t kLinesBeforeAnError = 2;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_blank(std::string_view line) { return trim(line).empty(); }

bool is_indented(std::string_view line) {
  return !line.empty() && (line[0] == ' ' || line[0] == '\t');
}

// The line of a log: a date, "[...]", or a severity and a date ("E1128 ", "[W1128 ") in front.
bool is_log_line(std::string_view line) {
  if (line.empty()) return false;
  if (line[0] == '[') return true;
  const std::size_t first = is_digit(line[0]) ? 0 : 1;
  return line.size() > first + 4 && (first == 0 || has("EWIF", line.substr(0, 1))) &&
         std::all_of(line.begin() + first, line.begin() + first + 4, is_digit);
}

bool has_any(std::string_view text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](const char* part) { return has(text, part); });
}

// Messages that a program prints and survives.
bool is_harmless(std::string_view line) {
  if (has(line, "NCCL WARN")) return false;  // NCCL has no other word for its errors
  if (has_any(line, {": W ", ": I ", " INFO ", "INFO:", "[INFO", " DEBUG ", "DEBUG:", "[DEBUG"}))
    return true;
  const std::string words = " " + lower_case(line);
  if (has_any(words,
              {"warning", " warn", "[warn", "ignoring", "(ignored", ": ignored", "(non-fatal"}))
    return true;
  const std::string_view severity = line.substr(line.substr(0, 1) == "[" ? 1 : 0, 1);
  return is_log_line(line) && !severity.empty() && has("WI", severity);
}

// A frame of a traceback, or the place of a SyntaxError; not those of faulthandler ("line 3 in f"),
// which come after the error.
bool is_frame(std::string_view line) {
  if (!is_indented(line) || trim(line).substr(0, 6) != "File \"") return false;
  const std::size_t number = line.rfind(", line ");
  return number != std::string_view::npos &&
         (has(line.substr(number), ", in ") || is_digit(line.back()));
}

// "ERROR: ...", "train.py: error: ...", "Fatal Python error: ...", "2026-11-28 12:00:00 CRITICAL
// ...".
bool announces_error(std::string_view line) {
  if (is_indented(line) || is_harmless(line)) return false;
  const std::string_view start = line.substr(0, 60);
  return has_any("^" + lower_case(start),
                 {"^error", "^fatal", "^panic", ": error:", ": fatal", "error while loading"}) ||
         has_any(start, {" ERROR ", "[ERROR", "CRITICAL", " FATAL "});
}

// What still appears when an exception has ended a program: by exit handlers, by the C++ runtime,
// by the shell.
bool comes_at_exit(std::string_view line) {
  return has_any("^" + std::string(line),
                 {"^wandb:", "^terminate called", "^Abort", "^Segmentation fault", "^Killed"});
}

std::size_t count_plain(Lines lines) {
  return static_cast<std::size_t>(
      std::count_if(lines.begin(), lines.end(), [](std::string_view line) {
        return !is_blank(line) && !is_indented(line) && !is_log_line(line) && !is_harmless(line) &&
               !comes_at_exit(line);
      }));
}

// Without the tracebacks of what Python ignores: errors in __del__ and atexit functions.
std::vector<std::string_view> relevant_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  bool ignored = false;
  for (const std::string_view raw : split(text, '\n')) {
    const std::string_view line = without_margin(raw);
    if (line.substr(0, 20) == "Exception ignored in") {
      ignored = true;
    } else if (!ignored) {
      lines.push_back(line);
    } else if (!is_indented(line) && line.substr(0, 9) != "Traceback") {
      ignored = false;  // the exception itself ends it
    }
  }
  return lines;
}

std::string joined(Lines lines) {
  std::string text;
  for (const std::string_view line : lines) {
    if (!is_harmless(line)) text.append(line).append("\n");
  }
  return text;
}

// The exception, and what follows of its text: libraries that end with the process write into the
// log.
std::string message_of(Lines lines) {
  std::string text(lines.front());
  for (const std::string_view line : lines.subspan(1)) {
    if (!is_harmless(line) && !is_log_line(line)) text.append("\n").append(line);
  }
  return text;
}

std::optional<std::size_t> last_index(Lines lines, bool (*matches)(std::string_view)) {
  const auto found = std::find_if(lines.rbegin(), lines.rend(), matches);
  if (found == lines.rend()) return std::nullopt;
  return static_cast<std::size_t>(std::distance(found, lines.rend()) - 1);
}

struct Traceback {
  std::size_t begin = 0;    // "Traceback (most recent call last):"
  std::size_t message = 0;  // the exception
};

std::optional<Traceback> last_traceback(Lines lines) {
  const std::optional<std::size_t> frame = last_index(lines, is_frame);
  if (!frame) return std::nullopt;
  Traceback traceback{*frame, *frame + 1};
  while (traceback.begin > 0 && is_indented(lines[traceback.begin])) --traceback.begin;
  while (traceback.message < lines.size() &&
         (is_indented(lines[traceback.message]) || is_blank(lines[traceback.message]))) {
    ++traceback.message;
  }
  if (traceback.message == lines.size()) return std::nullopt;
  return traceback;
}

// The cause above an exception that only says that something there failed; empty for others.
Lines named_cause(Lines before, std::string_view exception) {
  while (!before.empty() && is_blank(before.back())) before = before.first(before.size() - 1);
  if (has_any(exception, {"ChildFailedError", "CalledProcessError"})) return before;
  constexpr std::string_view kCause = "The above exception was the direct cause of";
  if (before.empty() || before.back().substr(0, kCause.size()) != kCause) return {};
  return before.first(before.size() - 1);
}

// Whether the program printed the traceback and went on: more follows than the message of the
// exception can have.
bool is_survived(Lines message) {
  const bool has_one_line =
      has_any(message.front(), {"ModuleNotFoundError", "MemoryError", "[Errno "});
  return count_plain(message.subspan(1)) > (has_one_line ? 0 : kLongestMessage);
}

void add_errors(Lines lines, std::vector<std::string>& errors) {
  const std::optional<Traceback> traceback = last_traceback(lines);
  const std::size_t after = traceback ? traceback->message + 1 : 0;
  if (const auto announced = last_index(lines.subspan(after), announces_error)) {
    const std::size_t at = after + *announced;
    if (count_plain(lines.subspan(at)) > kLongestMessage) return;
    errors.push_back(joined(lines.subspan(at)));
    const std::size_t context = std::min(at - after, kLinesBeforeAnError);
    errors.push_back(joined(lines.subspan(at - context, context)));
  } else if (traceback && !is_survived(lines.subspan(traceback->message))) {
    const Lines message = lines.subspan(traceback->message);
    errors.push_back(message_of(message));
    const Lines cause = named_cause(lines.first(traceback->begin), message.front());
    if (!cause.empty()) add_errors(cause, errors);
  } else {
    for (std::size_t at = lines.size();
         at-- > after && count_plain(lines.subspan(at)) <= kLongestWithoutError;) {
      if (!is_blank(lines[at])) errors.push_back(joined(lines.subspan(at, 1)));
    }
  }
}

}  // namespace

std::vector<std::string> last_errors(std::string_view text) {
  std::vector<std::string> errors;
  add_errors(relevant_lines(text), errors);
  return errors;
}

// Sentences that programs print when they die, and what helps. A pattern is part of one sentence of
// a library (PyTorch, NCCL, glibc, Python), always in English: those libraries have no
// translations, and strerror() uses one only where a program asks for it by setlocale(). It is
// searched in the error that ended the rank that failed first. A new row goes in front of those
// that it is a special case of.

namespace {

// The narrow patterns come before the wide ones.
constexpr StderrHint kHints[] = {
    {"cuda-memory", "CUDA out of memory", "the GPU has no memory left for this rank",
     "smaller batches, or fewer ranks per GPU; nvidia-smi shows which processes hold its memory"},
    {"cuda-memory", "CUDA_ERROR_OUT_OF_MEMORY", "the GPU has no memory left for this rank",
     "smaller batches, or fewer ranks per GPU; nvidia-smi shows which processes hold its memory"},
    {"memory-error", "MemoryError", "the process could not get more memory",
     "smaller batches, fewer ranks on the host, or a higher limit (ulimit -v, cgroup)"},
    {"shm-full", "No space left on device: '/dev/shm", "/dev/shm of the host is full",
     "mount it larger (docker run --shm-size=1g), or remove old files there"},
    {"shm-nccl", "Error while creating shared memory segment", "/dev/shm of the host is too small",
     "mount it larger (docker run --shm-size=1g)"},
    {"carriage-return", "\\r': No such file or directory",
     "the lines of a script end in a carriage return, as those of Windows files",
     "sed -i 's/\\r$//' SCRIPT"},
    // Of GNU env, whose first line quotes the name by the user's locale.
    {"carriage-return", "use -[v]S to pass options in shebang lines",
     "the #! line of the script has options for env's program, or ends in a carriage return, as "
     "those of Windows files",
     "begin it with #!/usr/bin/env -S, or sed -i 's/\\r$//' SCRIPT"},
    {"carriage-return", "$'\\r': command not found",
     "the lines of a script end in a carriage return, as those of Windows files",
     "sed -i 's/\\r$//' SCRIPT"},
    {"disk-full", "No space left on device", "a disk or /dev/shm of the host is full",
     "df -h on that host; /dev/shm counts too"},
    {"files", "Too many open files", "the limit of open files is reached",
     "raise it (ulimit -n), or use fewer data loader workers"},
    {"stacks", "no memory for the stack of a thread is left",
     "the process may not have so much address space",
     "raise the limit (ulimit -v), or give threads smaller stacks (ulimit -s)"},
    {"threads", "Resource temporarily unavailable", "no more threads or processes can be made",
     "raise the limits (ulimit -u, the pids limit of the container), or lower OMP_NUM_THREADS"},
    {"threads", "can't start new thread", "no more threads can be made",
     "raise the limits (ulimit -u, the pids limit of the container), or lower OMP_NUM_THREADS"},
    {"glibc", "version `GLIBC_", "a library was built for a newer C library than the host has",
     "use a build for that system; horarun doctor shows each host's glibc"},
    {"libstdc++", "version `GLIBCXX_",
     "a library was built for a newer C++ runtime than the host has",
     "install a newer libstdc++ there (conda install libstdcxx-ng), or use a build for that "
     "system"},
    {"runtime", "libhora.so, could not be loaded", "Hora's runtime is not on that host",
     "leave out --runtime host, and horarun brings it; or set HORA_LIBRARY to its path there"},
    {"library", "cannot open shared object file", "a shared library is missing on that host",
     "install it there, or set LD_LIBRARY_PATH for the ranks; 'ldd PROGRAM' shows which"},
    {"nccl-symbol", "undefined symbol: nccl",
     "another NCCL was loaded than the framework was built for",
     "remove the second NCCL package; horarun doctor lists the copies"},
    {"symbol",
     "undefined symbol:", "a library of another version was loaded than the program was built for",
     "look at LD_LIBRARY_PATH and LD_PRELOAD; 'ldd PROGRAM' shows which file is taken"},
    {"python-module", "ModuleNotFoundError: No module named",
     "a Python module is missing on that host",
     "install it in the same environment on every host; horarun doctor shows each host's Python"},
    {"python-file", "can't open file", "the script is not on that host, or not in that directory",
     "send it along with --ship FILE, name it by a path that all hosts share, or set --wdir"},
    {"python-syntax",
     "SyntaxError:", "the host's Python does not understand the script, it may be older",
     "horarun doctor shows each host's version"},
    {"python-import", "ImportError:", "a Python module could not be loaded on that host",
     "run 'python3 -c \"import MODULE\"' there"},
    {"nccl-interface", "no socket interface found",
     "NCCL_SOCKET_IFNAME selects no interface of that host",
     "unset it, or name an interface of every host; horarun doctor lists them"},
    {"nccl-system", "unhandled system error",
     "NCCL could not make a connection or a shared segment",
     "run again with NCCL_DEBUG=WARN; horarun doctor checks routes, /dev/shm and lockable memory"},
    {"nccl-cuda", "unhandled cuda error", "NCCL and the CUDA driver do not fit, or a GPU failed",
     "run again with NCCL_DEBUG=WARN; horarun doctor compares drivers"},
    {"cuda-driver", "CUDA driver version is insufficient", "the driver is older than CUDA asks for",
     "a newer driver, or a framework for an older CUDA; horarun doctor compares them"},
    {"cuda-none", "no CUDA-capable device is detected", "no GPU is visible to this rank",
     "look at CUDA_VISIBLE_DEVICES, and at nvidia-smi on that host"},
    {"cuda-assert", "device-side assert triggered", "a kernel found a wrong index or value",
     "run again with CUDA_LAUNCH_BLOCKING=1: the trace then names the place"},
    {"gpu-memory-error", "uncorrectable ECC error", "the GPU's memory is damaged",
     "take the host out of service and reset the GPU; 'dmesg | grep Xid' there names it"},
    {"cuda-error", "CUDA error:", "an operation on the GPU failed",
     "run again with CUDA_LAUNCH_BLOCKING=1: the trace then names the place; 'dmesg | grep Xid' on "
     "that host shows whether it is the GPU"},
    // A script without "#!" is a script of sh, whatever its name.
    {"python-by-sh", ": import: not found", "the script has no #! line, so sh ran it",
     "start it with: horarun ... python3 SCRIPT; or begin it with #!/usr/bin/env python3"},
    {"python-by-sh", ": from: not found", "the script has no #! line, so sh ran it",
     "start it with: horarun ... python3 SCRIPT; or begin it with #!/usr/bin/env python3"},
    {"python-by-sh", "import: command not found", "the script has no #! line, so sh ran it",
     "start it with: horarun ... python3 SCRIPT; or begin it with #!/usr/bin/env python3"},
    {"init-waits", "to start (HOROVOD_GLOO_TIMEOUT_SECONDS",
     "who is missing has not called init() in time: it is slow, hangs before it, or its program "
     "does not call it",
     "run again and press Ctrl-\\, which shows their stacks; every program of a job has to "
     "call "
     "init()"},
    {"init-of-others", "joining the job: connecting to rank 0",
     "rank 0 did not let this rank in, or a firewall is in between",
     "look at what rank 0 says; horarun doctor tries the connections"},
    {"address-in-use", "Address already in use", "the port is taken, perhaps by an earlier job",
     "let the launcher choose: leave MASTER_PORT alone; ss -ltnp shows the owner"},
    {"refused", "Connection refused",
     "a peer that should listen does not: it has not started, or has died",
     "look at the other ranks' last lines; the first failure above counts"},
    {"rendezvous", "rendezvous: connecting to",
     "the rank cannot connect back to the machine where horarun runs: a firewall, or a jump host "
     "(ProxyJump), is in between",
     "open TCP from the hosts to that machine, or start horarun on the jump host or on one of the "
     "hosts; horarun doctor tries that way, too"},
    {"timed-out", "Connection timed out",
     "a peer does not answer: a firewall, or the wrong network",
     "horarun doctor tries every way between the hosts; name a network by --network-interfaces"},
    {"reset", "Connection reset by peer", "a peer has died", "look at the other ranks' last lines"},
    {"permission", "Permission denied", "the rank may not read, write or execute that",
     "ls -l on that host, as the same user"},
    {"bus-error", "Bus error",
     "memory that was promised could not be had: /dev/shm is full, or a file shrank",
     "df -h /dev/shm on that host"},
    {"locked-memory", "ibv_create_cq", "InfiniBand queues need more lockable memory",
     "memlock unlimited in /etc/security/limits.conf (ulimit -l)"},
    {"left-early", ") has shut down",
     "that rank ended its program, or called shutdown(), while this one had more to do",
     "give all ranks the same number of steps; hvd.join() lets those that have fewer wait"},
    {"horovod-shutdown", "has been shut down", "another rank ended first; this one only noticed",
     "look for the rank that failed first"},
};

}  // namespace

std::span<const StderrHint> stderr_hints() { return kHints; }

const StderrHint* find_stderr_hint(std::string_view text) {
  for (const std::string& error : last_errors(text)) {
    for (const StderrHint& hint : kHints) {
      if (error.find(hint.pattern) != std::string::npos) return &hint;
    }
  }
  return nullptr;
}

}  // namespace hora::launcher
