// SPDX-License-Identifier: Apache-2.0
#include "launcher/step/step_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "rendezvous/os/atomic_file.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

// The last two of its parts: ".cache/hora". What is above them is the user's own, or missing with
// good reason.
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

// The lines come last: whoever can read them finds the rest.
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

}  // namespace hora::launcher
