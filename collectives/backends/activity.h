// SPDX-License-Identifier: Apache-2.0
// Reports an activity of a step to the timeline for as long as the object lives.
#pragma once

#include "collectives/backend.h"

namespace hora::collectives {

class Activity {
 public:
  // `name` is the name in Horovod's timeline, such as MPI_ALLREDUCE. The step must outlive this
  // object.
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
