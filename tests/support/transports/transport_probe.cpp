// SPDX-License-Identifier: Apache-2.0
// Starts an agent on each host by a transport and prints what happened, one JSON object per line.
// For tests and benchmarks; see usage() below.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "launcher/protocol/messages.h"
#if HORA_WITH_SSH
#include "launcher/transports/ssh_config.h"
#endif
#include "launcher/transports/transport.h"
#include "rendezvous/base/machine.h"

namespace {

using namespace hora::launcher;
using hora::Clock;

int usage() {
  std::fprintf(
      stderr,
      "transport_probe --agent FILE --sha HEX [--transport ssh|command] [--rsh WORD]...\n"
      "  --host [USER@]NAME ... [--port N] [--identity FILE] [--accept-new] [--config FILE]\n"
      "  [--fan-out N]\n"
      "  [--threads N] [--deadline-ms N] [--arg WORD]... [--stages]\n"
      "  MODE: --hello                 until Hello or a failure, then close (default)\n"
      "        --echo BYTES            send that much, take it back, compare checksums\n"
      "        --drain BYTES --idle-ms N   read nothing for a while, then all\n"
      "        --hold                  until stdin ends or the stream does\n"
      "        --resolve               connect to nothing: print what the ssh configuration "
      "means\n");
  return 2;
}

struct Options {
  std::string transport = "ssh";
  std::vector<std::string> rsh;
  AgentImage image;  // of one build, for this machine
  std::vector<Host> hosts;
  SshOptions ssh;
  int fan_out = 64;
  int threads = 0;
  int deadline_ms = 30'000;
  std::string mode = "--hello";
  unsigned long long bytes = 0;
  int idle_ms = 0;
  bool stages = false;
};

std::mutex output_mutex;
Clock::time_point began;

double elapsed_ms() {
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

std::string json(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    char escaped[8];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 32) {
      std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

void print_line(const std::string& line) {
  std::lock_guard lock(output_mutex);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// The supervisor's side of one stream.
class Stream {
 public:
  Stream(std::string name, hora::os::Fd fd) : name_(std::move(name)), fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

  // The next frame; nothing at the end of the stream or past the deadline.
  std::optional<Frame> next(Clock::time_point deadline) {
    while (true) {
      if (magic_) {
        auto frame = reader_.next();
        if (!frame) {
          problem_ = frame.error().message;
          return std::nullopt;
        }
        if (*frame) return *std::move(*frame);
      }
      if (!read(deadline)) return std::nullopt;
    }
  }

  std::string problem() const { return problem_; }

 private:
  bool read(Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd ready{fd_.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) {
      problem_ = "time is up";
      return false;
    }
    static thread_local char buffer[256 * 1024];
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got <= 0) {
      problem_ = got == 0 ? "end of stream" : std::strerror(errno);
      return false;
    }
    std::string_view bytes(buffer, static_cast<std::size_t>(got));
    if (!magic_) {
      if (bytes.substr(0, kAgentMagic.size()) != kAgentMagic) {
        problem_ = "no magic at the start of the stream";
        return false;
      }
      magic_ = true;
      bytes.remove_prefix(kAgentMagic.size());
    }
    reader_.feed(bytes);
    return true;
  }

  std::string name_;
  hora::os::Fd fd_;
  FrameReader reader_;
  bool magic_ = false;
  std::string problem_;
};

std::string failure_fields(const Frame& frame) {
  auto failure = decode<Failure>(frame.payload);
  if (!failure) return "\"result\":\"bad failure frame\"";
  return "\"result\":\"failure\",\"code\":" + json(failure->code) +
         ",\"message\":" + json(failure->subject + ": " + failure->message) +
         ",\"advice\":" + json(failure->advice);
}

std::string end_fields(const Stream& stream) {
  return "\"result\":\"end\",\"problem\":" + json(stream.problem());
}

long resident_kib() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  long pages = 0, resident = 0;
  if (file != nullptr) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

// Sends `bytes` in frames; the checksum of what was sent comes back.
unsigned long send_frames(int fd, unsigned long long bytes) {
  unsigned long crc = ::crc32(0, nullptr, 0);
  std::string payload(48 * 1024, '\0');
  unsigned int state = 12345;
  for (unsigned long long sent = 0; sent < bytes;) {
    const std::size_t part =
        static_cast<std::size_t>(std::min<unsigned long long>(payload.size(), bytes - sent));
    for (std::size_t i = 0; i < part; i += 16) {
      payload[i] = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
    }
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(payload.data()), static_cast<uInt>(part));
    const std::string frame =
        encode_frame(FrameType::kData, std::string_view(payload).substr(0, part));
    for (std::size_t at = 0; at < frame.size();) {
      const ssize_t wrote = ::send(fd, frame.data() + at, frame.size() - at, MSG_NOSIGNAL);
      if (wrote < 0) return 0;
      at += static_cast<std::size_t>(wrote);
    }
    sent += part;
  }
  return crc;
}

std::string receive_frames(Stream& stream, unsigned long long bytes, unsigned long& crc,
                           Clock::time_point deadline) {
  crc = ::crc32(0, nullptr, 0);
  for (unsigned long long got = 0; got < bytes;) {
    auto frame = stream.next(deadline);
    if (!frame) return stream.problem() + " after " + std::to_string(got) + " bytes";
    if (frame->type != FrameType::kData) {
      return "frame of type " + std::to_string(static_cast<int>(frame->type));
    }
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(frame->payload.data()),
                  static_cast<uInt>(frame->payload.size()));
    got += frame->payload.size();
  }
  return {};
}

std::string run_echo(Stream& stream, const Options& options, Clock::time_point deadline) {
  const auto start = Clock::now();
  unsigned long sent_crc = 0, got_crc = 0;
  std::thread sender([&] { sent_crc = send_frames(stream.fd(), options.bytes); });
  const std::string problem = receive_frames(stream, options.bytes, got_crc, deadline);
  if (!problem.empty()) ::shutdown(stream.fd(), SHUT_RDWR);
  sender.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (!problem.empty()) return "\"result\":\"end\",\"problem\":" + json(problem);
  return std::string("\"result\":\"echo\",\"equal\":") + (sent_crc == got_crc ? "true" : "false") +
         ",\"seconds\":" + std::to_string(seconds);
}

std::string run_drain(Stream& stream, const Options& options, Clock::time_point deadline) {
  ::poll(nullptr, 0, options.idle_ms);  // a supervisor that does not read
  const long resident = resident_kib();
  unsigned long crc = 0;
  const std::string problem = receive_frames(stream, options.bytes, crc, deadline);
  if (!problem.empty()) return "\"result\":\"end\",\"problem\":" + json(problem);
  auto goodbye = stream.next(deadline);
  const bool last = goodbye && goodbye->type == FrameType::kGoodbye;
  const bool over = last && !stream.next(deadline) && stream.problem() == "end of stream";
  return "\"result\":\"drained\",\"idle_kib\":" + std::to_string(resident) +
         ",\"goodbye\":" + (last ? "true" : "false") + ",\"over\":" + (over ? "true" : "false");
}

std::string run_hold(Stream& stream) {
  while (true) {
    pollfd fds[2] = {{stream.fd(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    ::poll(fds, 2, -1);
    if (fds[1].revents != 0) return "\"result\":\"released\"";
    auto frame = stream.next(Clock::now() + std::chrono::seconds(60));
    if (!frame) return end_fields(stream);
    if (frame->type == FrameType::kFailure) return failure_fields(*frame);
  }
}

std::string follow(Stream& stream, const Options& options) {
  const auto deadline = began + std::chrono::milliseconds(options.deadline_ms + 60'000);
  auto first = stream.next(deadline);
  const std::string when = ",\"ms\":" + std::to_string(elapsed_ms()) + ",";
  if (!first) return when + end_fields(stream);
  if (first->type == FrameType::kFailure) return when + failure_fields(*first);
  auto hello = decode<Hello>(first->payload);
  if (first->type != FrameType::kHello || !hello) return when + "\"result\":\"bad hello\"";
  if (options.mode == "--echo") return when + run_echo(stream, options, deadline);
  if (options.mode == "--drain") return when + run_drain(stream, options, deadline);
  if (options.mode == "--hold") {
    print_line("{\"event\":\"hello\",\"pid\":" + std::to_string(hello->pid) + "}");
    return when + run_hold(stream);
  }
  return when + "\"result\":\"hello\",\"cache\":" + json(hello->cache_directory) +
         ",\"pid\":" + std::to_string(hello->pid) + ",\"sha\":" + json(hello->agent_sha256);
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name(argv[i]);
    if (name == "--accept-new") {
      options.ssh.accept_new_host_keys = true;
      continue;
    }
    if (name == "--stages") {
      options.stages = true;
      continue;
    }
    if (name == "--hello" || name == "--hold" || name == "--resolve") {
      options.mode = name;
      continue;
    }
    if (i + 1 >= argc) return false;
    const std::string value = argv[++i];
    if (name == "--transport")
      options.transport = value;
    else if (name == "--rsh")
      options.rsh.push_back(value);
    else if (name == "--agent")
      options.image.builds[0].path = value;
    else if (name == "--sha")
      options.image.builds[0].sha256 = value;
    else if (name == "--arg")
      options.image.arguments.push_back(value);
    else if (name == "--port")
      options.ssh.port = std::atoi(value.c_str());
    else if (name == "--identity")
      options.ssh.identity_file = value;
    else if (name == "--config")
      options.ssh.config_file = value;
    else if (name == "--fan-out")
      options.fan_out = std::atoi(value.c_str());
    else if (name == "--threads")
      options.threads = std::atoi(value.c_str());
    else if (name == "--deadline-ms")
      options.deadline_ms = std::atoi(value.c_str());
    else if (name == "--idle-ms")
      options.idle_ms = std::atoi(value.c_str());
    else if (name == "--host") {
      Host host;
      const auto at = value.find('@');
      if (at != std::string::npos) host.user = value.substr(0, at);
      host.name = at == std::string::npos ? value : value.substr(at + 1);
      options.hosts.push_back(host);
    } else if (name == "--echo" || name == "--drain") {
      options.mode = name;
      options.bytes = std::strtoull(value.c_str(), nullptr, 10);
    } else {
      return false;
    }
  }
  return !options.hosts.empty() &&
         (options.mode == "--resolve" || !options.image.builds[0].path.empty());
}

#if HORA_WITH_SSH
std::string list(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (const std::string& text : texts) out += (out.size() > 1 ? "," : "") + json(text);
  return out + "]";
}

std::string target_fields(const SshTarget& target) {
  const auto& [timeout, proxy, family, compression] = target.route;
  const SshHostKeyPolicy& policy = target.host_keys;
  const SshAlgorithms& algorithms = target.algorithms;
  const auto number = [](auto value) { return std::to_string(static_cast<long>(value)); };
  return "\"address\":" + json(target.address) + ",\"port\":" + number(target.port) +
         ",\"user\":" + json(target.user) + ",\"program\":" + json(target.program_reason) +
         ",\"timeout\":" + number(timeout ? timeout->count() : 0) + ",\"proxy\":" + list(proxy) +
         ",\"family\":" + json(family) + ",\"compression\":" + number(compression) +
         ",\"files\":" + list(target.keys.files) + ",\"missing\":" + list(target.keys.missing) +
         ",\"agent\":" + json(target.keys.agent_socket) +
         ",\"identities_only\":" + number(target.keys.identities_only) +
         ",\"forbidden\":" + json(target.keys.forbidden_by) +
         ",\"known_as\":" + json(policy.known_as) + ",\"alias\":" + number(policy.is_alias) +
         ",\"checking\":" + number(policy.checking) +
         ",\"known_hosts\":" + list(policy.known_hosts_files) +
         ",\"user_files\":" + number(policy.user_file_count) +
         ",\"hash\":" + number(policy.hash_names) + ",\"kex\":" + json(algorithms.kex) +
         ",\"ciphers\":" + json(algorithms.ciphers) + ",\"macs\":" + json(algorithms.macs) +
         ",\"host_keys\":" + json(algorithms.host_keys) +
         ",\"public_keys\":" + json(algorithms.public_keys) +
         ",\"rsa_bits\":" + number(algorithms.rsa_bits);
}

int resolve(const Options& options) {
  SshTargets targets(options.ssh);
  for (const Host& host : options.hosts) {
    const auto target = targets.target_of(host);
    print_line("{\"host\":" + json(host.name) + "," +
               (target ? target_fields(*target) : "\"problem\":" + json(target.error().message)) +
               "}");
  }
  return 0;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.image.machines = hora::own_machine();
  options.image.builds = {{options.image.machines, "", "", ""}};
  if (!parse(argc, argv, options)) return usage();
  std::error_code missing;
  AgentBuild& build = options.image.builds[0];
  build.size_bytes = std::filesystem::file_size(build.path, missing);
#if HORA_WITH_SSH
  if (options.mode == "--resolve") return resolve(options);
#endif
  began = Clock::now();
  StageObserver observer = [&](int index, Stage stage, std::string_view detail) {
    if (!options.stages) return;
    print_line("{\"event\":\"stage\",\"host\":" + json(options.hosts[index].name) +
               ",\"stage\":" + json(stage_name(stage)) + ",\"ms\":" + std::to_string(elapsed_ms()) +
               ",\"detail\":" + json(detail) + "}");
  };
  std::unique_ptr<Transport> transport;
  if (options.transport == "command") {
    transport = make_command_transport(options.rsh, observer);
  } else {
#if HORA_WITH_SSH
    SshTransportOptions ssh;
    ssh.ssh = options.ssh;
    ssh.fan_out = options.fan_out;
    ssh.io_threads = options.threads;
    transport = make_ssh_transport(ssh, observer);
#else
    std::fprintf(stderr, "built without ssh\n");
    return 3;
#endif
  }
  const auto deadline = began + std::chrono::milliseconds(options.deadline_ms);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (std::size_t i = 0; i < options.hosts.size(); ++i) {
    auto fd = transport->start(options.hosts[i], static_cast<int>(i), options.image, deadline);
    if (!fd) {
      print_line("{\"host\":" + json(options.hosts[i].name) +
                 ",\"result\":\"not started\",\"message\":" + json(fd.error().message) + "}");
      ++failures;
      continue;
    }
    threads.emplace_back([&, i, fd = *std::move(fd)]() mutable {
      Stream stream(options.hosts[i].name, std::move(fd));
      const std::string result = follow(stream, options);
      if (result.find("\"failure\"") != std::string::npos ||
          result.find("\"end\"") != std::string::npos) {
        ++failures;
      }
      stream.close();
      print_line("{\"host\":" + json(options.hosts[i].name) + result + "}");
    });
  }
  for (auto& thread : threads) thread.join();
  const double all = elapsed_ms();
  transport.reset();
  print_line("{\"event\":\"over\",\"ms\":" + std::to_string(all) +
             ",\"with_end_ms\":" + std::to_string(elapsed_ms()) + "}");
  return failures == 0 ? 0 : 1;
}
