// --chaos cut: this host and another do not hear each other. The kernel's table that does it
// belongs to a socket of this process, so that it is gone with this object and with this process,
// whatever ends that.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class NetworkCuts {
 public:
  // `word` is of this job alone: the tables are named by it.
  NetworkCuts(std::vector<CutOrder> cuts, std::string word);

  // Whether the kernel takes every one of them; nothing is dropped.
  Status try_out() const;
  Status cut(std::size_t index);  // nothing when it is cut already
  void heal(std::size_t index);

 private:
  std::vector<CutOrder> cuts_;
  std::string word_;
  std::map<std::size_t, os::Fd> active_;  // the owners of the tables
};

}  // namespace hora::launcher
