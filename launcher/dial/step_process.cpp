// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/step_process.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "launcher/protocol/exit_code.h"
#include "launcher/transports/remote_command.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

// The last two of its parts: ".cache/hora". The folders above them are the user's own, or missing
// for a good reason.
void make_folder(const std::string& folder) {
  (void)::mkdir(folder.substr(0, folder.rfind('/')).c_str(), 0700);
  (void)::mkdir(folder.c_str(), 0700);
}

}  // namespace

// Noted first, so that half a file is removed, too.
Status StepFiles::put(const std::string& path, const std::string& bytes, unsigned mode) {
  paths_.push_back(path);
  auto file = os::AtomicFile::make(path, mode);
  if (!file) return std::move(file).error();
  HORA_TRY(file->write(bytes));
  return file->finish();
}

// The lines come last: a reader of them finds the rest.
Status StepFiles::write(const EngineStep& engine, const StepRequest& request,
                        const std::string& url) {
  make_folder(engine.folder);
  const std::string copies = step_copies(engine, request.nonce);
  for (int file = 0; file < static_cast<int>(request.files.size()); ++file) {
    auto bytes = os::read_file(request.files[static_cast<std::size_t>(file)].path);
    if (!bytes) return std::move(bytes).error();
    HORA_TRY(put(step_copy(copies, file), *bytes, 0700));
  }
  return put(step_words_file(copies), step_words_text(url), 0600);
}

void StepFiles::remove() {
  for (const std::string& path : paths_) (void)::unlink(path.c_str());
  paths_.clear();
}

// Streams and end of the child are read without blocking, so that a command of the engine that
// hangs holds up nothing else on the loop.

WatchedChild::~WatchedChild() { unwatch_all(); }

void WatchedChild::unwatch_all() {
  close_input();
  unwatch(child_.stdout_fd.get(), out_);
  unwatch(child_.stderr_fd.get(), err_);
  unwatch(child_.ended_fd(), end_);
}

void WatchedChild::leave() {
  unwatch_all();
  child_.leave();
}

Status WatchedChild::start(const std::vector<std::string>& argv) {
  auto child = PipedChild::start(argv);
  if (!child) return std::move(child).error();
  return watch(*std::move(child));
}

// Without a pidfd (Linux before 5.3) the end of the output marks the end.
Status WatchedChild::watch(PipedChild child) {
  child_ = std::move(child);
  const auto read_output = [this](std::uint32_t) {
    const bool open = read_all(child_.stdout_fd, out_, handlers_.on_output);
    if (!open && child_.ended_fd() < 0) on_exit();
  };
  HORA_TRY(loop_.watch(child_.stdout_fd.get(), EPOLLIN, read_output));
  out_ = true;
  HORA_TRY(loop_.watch(child_.stderr_fd.get(), EPOLLIN, [this](std::uint32_t) {
    (void)read_all(child_.stderr_fd, err_, handlers_.on_errors);
  }));
  err_ = true;
  if (child_.ended_fd() < 0) return Ok{};
  HORA_TRY(loop_.watch(child_.ended_fd(), EPOLLIN, [this](std::uint32_t) { on_exit(); }));
  end_ = true;
  return Ok{};
}

// Twice does no harm: a stream may end before the process does, or after.
void WatchedChild::unwatch(int fd, bool& watched) {
  if (std::exchange(watched, false)) loop_.unwatch(fd);
}

// Blocking would need an answer that the loop's thread cannot read: the few bytes fit into the
// pipe.
void WatchedChild::write(std::string_view text) {
  while (child_.stdin_fd.valid() && !text.empty()) {
    const ssize_t wrote = ::write(child_.stdin_fd.get(), text.data(), text.size());
    if (wrote > 0) {
      text.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (wrote < 0 && errno == EINTR) {
      continue;
    } else {  // it reads no more: its exit will say why
      child_.stdin_fd.reset();
    }
  }
}

void WatchedChild::close_input() {
  unwatch(child_.stdin_fd.get(), in_);
  child_.stdin_fd.reset();
}

Status WatchedChild::feed(std::shared_ptr<const std::string> bytes) {
  if (!child_.stdin_fd.valid()) return Ok{};
  input_ = std::move(bytes);
  HORA_TRY(loop_.watch(child_.stdin_fd.get(), EPOLLOUT, [this](std::uint32_t) { write_input(); }));
  in_ = true;
  return Ok{};
}

void WatchedChild::write_input() {
  while (fed_ < input_->size()) {
    const ssize_t wrote =
        ::write(child_.stdin_fd.get(), input_->data() + fed_, input_->size() - fed_);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) return;
    if (wrote < 0) break;
    fed_ += static_cast<std::size_t>(wrote);
  }
  close_input();
}

// False: the stream has ended.
bool WatchedChild::read_all(os::Fd& fd, bool& watched,
                            const std::function<void(std::string_view)>& report) {
  char buffer[4096];
  while (fd.valid()) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got > 0) {
      if (report) report({buffer, static_cast<std::size_t>(got)});
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      return true;
    } else {
      unwatch(fd.get(), watched);
      fd.reset();
    }
  }
  return false;
}

// Its earlier output may not have been read yet.
void WatchedChild::on_exit() {
  unwatch(child_.ended_fd(), end_);
  (void)read_all(child_.stderr_fd, err_, handlers_.on_errors);
  (void)read_all(child_.stdout_fd, out_, handlers_.on_output);
  const int status = child_.try_wait().value_or(kExitClientFailed);
  if (handlers_.on_end) std::exchange(handlers_.on_end, nullptr)(status);
}

// The conversation with the tasks is in lines, because the engine mixes what all tasks print into
// one stream: only complete lines can be separated.

namespace {

// Output of a task without a line feed is not kept for ever.
constexpr std::size_t kLongestLine = 4096;
constexpr std::size_t kMostWords = 4096;

// Earlier output of a killed program is not the reason. An engine's command ends like its tasks.
std::string how_it_ended(const std::string& program, int status, const std::string& errors) {
  // 255 is not a signal: programs end with it by exit(-1).
  if (status > kExitSignalBase && status <= kExitSignalBase + SIGRTMAX) {
    return program + " or what it ran was ended by signal " +
           std::to_string(status - kExitSignalBase);
  }
  return program + " ended with status " + std::to_string(status) +
         (trim(errors).empty() ? "" : ": " + last_words(errors));
}

}  // namespace

StepProcess::StepProcess(os::EventLoop& loop, EngineStep engine, StepRequest request,
                         std::string secret, std::optional<PipedChild> early, Handlers handlers)
    : loop_(loop),
      engine_(std::move(engine)),
      request_(std::move(request)),
      secret_(std::move(secret)),
      early_(std::move(early)),
      handlers_(std::move(handlers)),
      step_(loop, {[this](std::string_view bytes) { on_output(bytes); },
                   [this](std::string_view bytes) { on_errors(bytes); },
                   [this](int status) {
                     handlers_.on_end(how_it_ended(engine_.name, status, errors_));
                   }}) {}

Result<std::optional<PipedChild>> StepProcess::begin_early(const EngineStep& engine,
                                                           const StepRequest& request) {
  if (!engine.folder.empty()) return std::optional<PipedChild>();
  auto command = step_command(engine, request);
  if (!command) return std::move(command).error();
  auto child = PipedChild::start_guarded(*command, guard_timeout(request));
  if (!child) return std::move(child).error();
  return std::optional<PipedChild>(*std::move(child));
}

// The tasks read their line when they run; until then the pipe keeps it.
Status StepProcess::begin() {
  if (early_) {
    is_guarded_ = true;
    HORA_TRY(step_.watch(*std::exchange(early_, {})));
  } else {
    auto command = step_command(engine_, request_);
    if (!command) return std::move(command).error();
    if (!engine_.folder.empty()) HORA_TRY(files_.write(engine_, request_, secret_));
    HORA_TRY(step_.start(*command));
  }
  if (engine_.folder.empty()) {
    step_.write(secret_ + "\n");
  } else {
    step_.close_input();
  }
  return Ok{};
}

// The tasks have hung up. It does not matter that the engine's daemons note this a seventh of a
// short job's time later.
bool StepProcess::leave() {
  if (is_guarded_) step_.leave();
  return is_guarded_;
}

// Line by line; other output of a task's shell does no harm.
void StepProcess::on_output(std::string_view bytes) {
  line_ += bytes;
  std::size_t end = 0;
  while ((end = line_.find('\n')) != std::string::npos) {
    const auto said = parse_step_line(request_.nonce, std::string_view(line_).substr(0, end));
    line_.erase(0, end + 1);
    if (!said) continue;
    if (const auto* need = std::get_if<StepNeed>(&*said)) {
      copy_files(need->step);
    } else {
      handlers_.on_failure(std::get<StepFailure>(*said));
    }
  }
  if (line_.size() > kLongestLine) line_.clear();
}

void StepProcess::on_errors(std::string_view bytes) {
  errors_ += bytes;
  if (errors_.size() > kMostWords) errors_.erase(0, errors_.size() - kMostWords);
  handlers_.on_errors(bytes);
}

// Once for all hosts, those included that have the files: which hosts lack them is not known before
// the last one has said so. All files at the same time.
void StepProcess::copy_files(const std::string& step) {
  if (!copies_.empty() || copy_failed_) return;
  if (engine_.copy.empty()) return refuse_copies("the engine copies no files");
  for (int file = 0; file < static_cast<int>(request_.files.size()); ++file) {
    auto& child = copies_.emplace_back(std::make_unique<WatchedChild>(
        loop_, WatchedChild::Handlers{{},
                                      [this](std::string_view said) {
                                        if (copy_words_.size() < kMostWords) copy_words_ += said;
                                      },
                                      [this](int status) { on_copied(status); }}));
    ++under_way_;
    const auto command = copy_command(engine_, request_, file, step);
    if (auto started = child->start(command); !started) {
      return refuse_copies(started.error().message);
    }
    child->close_input();
  }
}

// One copy that fails is a failure of all: each host needs every file.
void StepProcess::on_copied(int status) {
  if (copy_failed_) return;
  if (status != 0) {
    return refuse_copies(how_it_ended(engine_.copy.front(), status, copy_words_));
  }
  if (--under_way_ == 0) step_.write(std::string(kStepSent) + secret_ + "\n");
}

// Tasks that wait for a copy end when they read that there is none; those that have dialled do not
// read it.
void StepProcess::refuse_copies(const std::string& why) {
  copy_failed_ = true;
  step_.write("none\n");
  handlers_.on_errors(copy_words_);
  for (const Host& host : request_.hosts) handlers_.on_failure({host.name, why});
}

}  // namespace hora::launcher
