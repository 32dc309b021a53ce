// SPDX-License-Identifier: Apache-2.0
// The output of a job that has no terminal (--detach): a file next to the socket of its launcher.
// Its old part is given back to the file system, so that it takes no more than kMostKeptOutput and
// what was written since the last trim(). It goes with the job; who reads it then reads to its end.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

inline constexpr off_t kMostKeptOutput = 16 << 20;

// The launcher's. Made by the process that starts it, which can read it from its beginning.
class OutputFile {
 public:
  // In the first of `folders` that works, named by this process.
  static Result<OutputFile> make(const std::vector<std::string>& folders);
  OutputFile(OutputFile&&) = default;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  // In the child: it has the name of this process now, and removes it at its end.
  Status take_over();
  // In its parent: the child removes it.
  void leave() { file_.reset(); }

  // Makes it standard output and standard error of this process.
  Status take_streams();

 private:
  OutputFile() = default;
  std::string folder_;
  os::Fd directory_;
  std::string name_;
  os::Fd file_;
};

// Whether it is the file that this process keeps.
bool is_kept_output(int fd);

// A file system that cannot do it keeps all.
void trim_kept_output(int fd);

// A reader's.
class OutputReader {
 public:
  // kNotFound: the job keeps no output.
  static Result<OutputReader> open(const std::vector<std::string>& folders, int job);
  // What has come since, from what is kept on; "" when there is nothing new.
  Result<std::string> read_new();
  // Its launcher has removed it: nothing more will come.
  bool is_complete() const;

 private:
  explicit OutputReader(os::Fd file) : file_(std::move(file)) {}
  os::Fd file_;
  off_t position_ = 0;
};

// "1234.out"; and the job of such a name, 0 if it is none.
std::string kept_output_name(int job);
int job_of_kept_output(const std::string& name);

}  // namespace hora::launcher
