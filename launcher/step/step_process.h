// SPDX-License-Identifier: Apache-2.0
// The engine's command that starts a task on every host of a step, and what is said with the tasks
// until their helpers dial. Lives on one event loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/step/starter.h"
#include "launcher/step/step_files.h"
#include "launcher/step/step_words.h"
#include "launcher/step/watched_child.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class StepProcess : public Starter {
 public:
  // `secret` is the line for the tasks, `early` what begin_early() has started.
  StepProcess(os::EventLoop& loop, EngineStep engine, StepRequest request, std::string secret,
              std::optional<PipedChild> early, Handlers handlers);

  // What the tasks find by stdin can come after the command has begun: the engine takes its time.
  static Result<std::optional<PipedChild>> begin_early(const EngineStep& engine,
                                                       const StepRequest& request);
  // Errors: there is no such command.
  Status begin() override;
  void remove_files() override { files_.remove(); }
  void ask_to_end() override { step_.ask_to_end(); }  // passed on to the tasks by the command
  bool owns_helpers() const override { return true; }
  bool leave() override;

 private:
  void on_output(std::string_view bytes);
  void on_errors(std::string_view bytes);
  void copy_files(const std::string& step);
  void on_copied(int status);
  void refuse_copies(const std::string& why);

  os::EventLoop& loop_;
  EngineStep engine_;
  StepRequest request_;
  std::string secret_;
  std::optional<PipedChild> early_;
  Handlers handlers_;
  StepFiles files_;
  WatchedChild step_;
  std::string line_;    // of its output, not whole yet
  std::string errors_;  // the last of what it has said
  std::vector<std::unique_ptr<WatchedChild>> copies_;
  std::size_t under_way_ = 0;  // of those
  bool copy_failed_ = false;
  bool is_guarded_ = false;
  std::string copy_words_;  // what the failed one said
};

}  // namespace hora::launcher
