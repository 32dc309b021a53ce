// SPDX-License-Identifier: Apache-2.0
// What the engine's command prints comes on one thread, while the question why the job ended is
// asked on another, often before the answer is there: a scheduler ends the ranks first and explains
// later.
#include "launcher/step/engine_words.h"

#include "launcher/failures/failure_code.h"
#include "launcher/process/captured_run.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Of a chatty command the end counts: its last words say why it ended.
constexpr std::size_t kMostWords = 8 * 1024;
// A scheduler of a busy cluster takes a moment. The job has ended, and its user waits.
constexpr std::chrono::milliseconds kAnswerPatience{3'000};

}  // namespace

// Both may come in any number of pieces; whoever waits looks at all that has come.
void EngineWords::hear(std::string_view said) {
  {
    const std::lock_guard lock(mutex_);
    said_ += said;
    if (said_.size() > kMostWords) said_.erase(0, said_.size() - kMostWords);
  }
  changed_.notify_all();
}

void EngineWords::command_ended(const std::string& how) {
  {
    const std::lock_guard lock(mutex_);
    end_ = how;
  }
  changed_.notify_all();
}

std::vector<FailedHost> EngineWords::failed_hosts() {
  if (engine_.failed_hosts == nullptr) return {};
  const std::lock_guard lock(mutex_);
  return engine_.failed_hosts(said_);
}

// The words tell more than the end of the command, which has them for its cause.
std::string EngineWords::heard(std::chrono::milliseconds patience) {
  if (engine_.last_word == nullptr) return "";
  std::unique_lock lock(mutex_);
  std::string word;
  const auto known = [&] {
    word = engine_.last_word(said_);
    return !word.empty() || !end_.empty();
  };
  (void)changed_.wait_for(lock, patience, known);
  return word;
}

// An engine that does not answer, or whose command is not here, knows nothing.
std::string EngineWords::asked() const {
  if (engine_.verdict == nullptr || job_.question.empty()) return "";
  const auto answer = run_captured(job_.question, kAnswerPatience);
  if (!answer) return "";
  return visible_line(engine_.verdict(job_.job, {answer->exit_code, answer->output}));
}

std::optional<Failure> EngineWords::why_ended(std::chrono::milliseconds patience) {
  // That is the cause, and named with its host: the engine's command ends the others for it.
  if (!failed_hosts().empty()) return std::nullopt;
  std::string word = heard(patience);
  if (word.empty() && patience.count() > 0) word = asked();
  if (word.empty()) {
    const std::lock_guard lock(mutex_);
    word = end_;
  }
  if (word.empty()) return std::nullopt;
  return Failure{std::string(failure::kEngine),
                 std::string(engine_.title) + " has ended the job: " + word, ""};
}

}  // namespace hora::launcher
