// SPDX-License-Identifier: Apache-2.0
// The conversation with the tasks goes by lines, because the engine mixes what all tasks print into
// one stream: a line that came whole is the most that can be told apart.
#include "launcher/step/step_process.h"

#include <signal.h>

#include <utility>

#include "launcher/protocol/exit_code.h"
#include "launcher/transports/remote_end.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// What a task prints without a line feed is not kept for ever.
constexpr std::size_t kLongestLine = 4096;
constexpr std::size_t kMostWords = 4096;

// What a program that was killed had said before is not why.
std::string how_it_ended(const std::string& program, int status, const std::string& errors) {
  // 255 is not a signal: programs end with it by exit(-1).
  if (status > kExitSignalBase && status <= kExitSignalBase + SIGRTMAX) {
    return program + " was ended by signal " + std::to_string(status - kExitSignalBase);
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
  auto child = PipedChild::start_guarded(*command, guard_patience(request));
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

// The tasks have hung up. When the engine's daemons have noted that, a seventh of a short job's
// time later, tells nobody anything.
bool StepProcess::leave() {
  if (is_guarded_) step_.leave();
  return is_guarded_;
}

// Line by line; what a task's shell prints besides is no harm.
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
