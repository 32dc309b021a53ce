// SPDX-License-Identifier: Apache-2.0
// Notifies one of the real Horovod's workers that hosts were added or removed. The loop's thread
// gives the orders; a thread of its own does the transfer, so that a worker without an answer
// delays no other.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "launcher/elastic/horovod_wire.h"
#include "rendezvous/base/result.h"

namespace hora::launcher::elastic {

class HorovodNotifier {
 public:
  static Result<std::unique_ptr<HorovodNotifier>> start();
  ~HorovodNotifier();  // waits for a conversation that is under way, some seconds at most
  HorovodNotifier(const HorovodNotifier&) = delete;
  HorovodNotifier& operator=(const HorovodNotifier&) = delete;

  // The value that the worker of this slot ("host:0") has put into the store.
  void remember(const std::string& slot, const std::string& value);
  // Nothing happens while no worker of that slot is known. result: 1 gone, 2 come, 3 both.
  void notify(const std::string& slot, int result);

 private:
  struct Order {
    WorkerContact contact;
    std::string message;
  };
  HorovodNotifier() = default;
  void run();

  std::map<std::string, WorkerContact> contacts_;  // the loop's alone
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Order> orders_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace hora::launcher::elastic
