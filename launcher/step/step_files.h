// SPDX-License-Identifier: Apache-2.0
// What the tasks of a step find in a folder that all hosts see: the programs that a host may lack,
// and the launcher's lines, which are a secret. Takes as long as the file system does.
#pragma once

#include <string>
#include <vector>

#include "launcher/step/step_words.h"

namespace hora::launcher {

class StepFiles {
 public:
  StepFiles() = default;
  ~StepFiles() { remove(); }
  StepFiles(const StepFiles&) = delete;
  StepFiles& operator=(const StepFiles&) = delete;

  // Errors: of the file system; nothing is left then.
  Status write(const EngineStep& engine, const StepRequest& request, const std::string& url);
  void remove();

 private:
  Status put(const std::string& path, const std::string& bytes, unsigned mode);

  std::vector<std::string> paths_;
};

}  // namespace hora::launcher
