// What a backend does during a step, told to the timeline while an object of this lives.
#pragma once

#include "collectives/backends/backend.h"

namespace hora::collectives {

class Activity {
 public:
  // `name`: as Horovod's timeline calls it, such as MPI_ALLREDUCE.
  Activity(const Step& step, const char* name) : listener_(step.activities) {
    if (listener_ != nullptr) listener_->begin(name);
  }
  ~Activity() {
    if (listener_ != nullptr) listener_->end();
  }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  Activities* listener_;
};

}  // namespace hora::collectives
