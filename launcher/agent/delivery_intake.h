// SPDX-License-Identifier: Apache-2.0
// Data that reaches this host before the order: parts of the runtime and of the user's folders,
// from the launcher or from another host. Passes each to its owner: Staging unpacks it,
// DeliveryExchange serves it to others. On the loop's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/agent/launcher_link.h"
#include "launcher/agent/staging.h"
#include "launcher/protocol/messages.h"
#include "launcher/store/delivery_exchange.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class DeliveryIntake {
 public:
  // Link and staging outlive it. `fail` ends the job, and may call end().
  DeliveryIntake(os::EventLoop& loop, LauncherLink& link, Staging& staging,
                 std::function<void(Failure)> fail);

  void on(DeliveryFrame delivery);
  void on(const OfferTree& tree);
  void on(KeepDelivery order);
  void on(FetchDelivery order);
  void on(const ForgetDeliveries& forget) { exchange_.forget(forget.id); }

  // Keeps, fetches and serves nothing any more.
  void end();

 private:
  std::optional<Failure> stage(Frame frame);
  bool unpack(std::string_view frames);

  LauncherLink& link_;
  Staging& staging_;
  std::function<void(Failure)> fail_;
  DeliveryExchange exchange_;
  bool ended_ = false;
};

}  // namespace hora::launcher
