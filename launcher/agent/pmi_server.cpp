// SPDX-License-Identifier: Apache-2.0
// Runs the helper that speaks PMI with the ranks. The helper reads one message from its stdin,
// answers once on stdout, and then sends records there; it ends when its stdin closes, so it cannot
// outlive the agent.
#include "launcher/agent/pmi_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "launcher/process/spawn.h"
#include "launcher/protocol/frame.h"
#include "launcher/protocol/pmi_records.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/local_socket.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostReply = 16 << 20;
constexpr std::size_t kMostServerOutput = 2048;

// The helper reads the message before anything else, so this does not block for long. If it cannot
// start, the pipe breaks.
bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// Reads the available bytes. Returns false at the end of the stream.
bool read_into(const os::Fd& fd, std::string& bytes) {
  char buffer[4096];
  while (true) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    if (count == 0) return false;
    bytes.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace

Result<std::unique_ptr<PmiServer>> PmiServer::start(os::EventLoop& loop, const std::string& program,
                                                    char* const* environment, const PmiJob& job,
                                                    Events events) {
  os::Pipe input, output, error;
  if (!input.open() || !output.open() || !error.open()) {
    return errno_error(errno, "making a pipe");
  }
  std::string name = program.substr(program.rfind('/') + 1);
  char* const argv[] = {name.data(), nullptr};
  SpawnRequest request;
  request.program = program.c_str();
  request.argv = argv;
  request.envp = environment;
  request.stdin_fd = input.read_end.get();
  request.stdout_fd = output.write_end.get();
  request.stderr_fd = error.write_end.get();
  const SpawnOutcome outcome = spawn(request);
  if (!outcome.ok()) return errno_error(outcome.errnum, "starting " + program);
  std::unique_ptr<PmiServer> self(new PmiServer(loop, std::move(events)));
  self->pid_ = outcome.pid;
  self->life_ = std::move(input.write_end);
  self->reply_ = std::move(output.read_end);
  self->complaints_ = std::move(error.read_end);
  input.read_end.reset();
  // A failure here means that the helper has ended; its own words say why.
  const std::string message = encode(job);
  const std::string length = u32_payload(static_cast<std::uint32_t>(message.size()));
  static_cast<void>(write_all(self->life_.get(), length + message));
  for (const os::Fd* fd : {&self->reply_, &self->complaints_}) {
    if (::fcntl(fd->get(), F_SETFL, O_NONBLOCK) != 0) return errno_error(errno, "a pipe");
  }
  PmiServer* const server = self.get();
  HORA_TRY(loop.watch(self->reply_.get(), EPOLLIN, [server](auto) { server->read_reply(); }));
  HORA_TRY(
      loop.watch(self->complaints_.get(), EPOLLIN, [server](auto) { server->read_complaints(); }));
  return self;
}

// A callback may destroy this object, so nothing touches it after a callback.
PmiServer::~PmiServer() {
  for (const os::Fd* fd : {&reply_, &complaints_}) {
    if (fd->valid()) loop_.unwatch(fd->get());
  }
  // The pid is valid until reaped() is called.
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void PmiServer::end() {
  over_ = true;
  life_.reset();
}

// Output that the server has written may still be in the pipe.
bool PmiServer::is_used() {
  if (!used_) read_reply();
  return used_;
}

// First the reply with its length, then any number of records.
void PmiServer::read_reply() {
  const bool open = read_into(reply_, received_);
  std::string_view rest = received_;
  if (const auto length = ready_ ? std::nullopt : read_u32(rest)) {
    if (*length > kMostReply) return fail("it answered something else than a PMI server does");
    if (rest.size() >= *length) {
      auto reply = decode<PmiReply>(rest.substr(0, *length));
      if (!reply) return fail(reply.error().message);
      if (!reply->error.empty()) return fail(reply->error);
      ready_ = true;
      received_.erase(0, 4 + *length);
      events_.on_ready(std::move(*reply));
    }
  }
  while (ready_ && read_record()) {
  }
  if (!open) loop_.unwatch(reply_.get());
}

// Handles one record after the reply (pmi_records.h); false if it is not complete yet.
bool PmiServer::read_record() {
  std::string_view rest = received_;
  if (rest.size() < 8) return false;
  const std::uint32_t what = *read_u32(rest);
  const std::uint32_t number = *read_u32(rest);
  if (what == kPmiUsed) {
    used_ = true;
    received_.erase(0, 8);
    return true;
  }
  if (what != kPmiNote) {
    received_.erase(0, 8);
    events_.on_abort(static_cast<int>(what), static_cast<int>(number));
    return true;
  }
  if (number > kMostPmiNote) {
    fail("it says something else than a PMI server does");
    return false;
  }
  if (rest.size() < number) return false;
  std::string note(rest.substr(0, number));
  received_.erase(0, 8 + note.size());
  events_.on_note(std::move(note));
  return true;
}

void PmiServer::read_complaints() {
  if (!read_into(complaints_, last_words_)) loop_.unwatch(complaints_.get());
  if (last_words_.size() > kMostServerOutput) {
    last_words_.erase(0, last_words_.size() - kMostServerOutput);
  }
}

// The agent's common loop has reaped the helper. The pipes may still hold its last words.
void PmiServer::reaped(int status) {
  pid_ = -1;
  read_complaints();
  read_reply();
  if (over_) return;
  while (!last_words_.empty() && last_words_.back() == '\n') last_words_.pop_back();
  std::string how = WIFSIGNALED(status)
                        ? "it was killed by signal " + std::to_string(WTERMSIG(status))
                        : "it ended with exit code " + std::to_string(WEXITSTATUS(status));
  if (!last_words_.empty()) how += ": " + last_words_;
  fail(std::move(how));
}

// Reports the first failure only; the ones that follow are its consequences.
void PmiServer::fail(std::string what) {
  if (over_) return;
  over_ = true;
  const auto on_failed = std::move(events_.on_failed);
  on_failed(std::move(what));
}

// Connected before the rank exists, so that the rank needs no address and no permission: it
// inherits the descriptor.
os::Fd connect_for_rank(const std::string& socket, int rank) {
  const os::AbstractAddress address(socket);
  os::Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string line = "rank=" + std::to_string(rank) + "\n";
  if (!fd.valid() || ::connect(fd.get(), address.get(), address.size()) != 0 ||
      !write_all(fd.get(), line)) {
    return os::Fd();
  }
  return fd;
}

}  // namespace hora::launcher
