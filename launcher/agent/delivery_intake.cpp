// SPDX-License-Identifier: Apache-2.0
// Staging takes one delivery at a time, and its frames are not numbered. So what was fetched from
// another host waits in the exchange until none of the launcher's is half here.
#include "launcher/agent/delivery_intake.h"

#include <unistd.h>

#include <utility>

#include "launcher/agent/order_check.h"
#include "launcher/failures/failure_code.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

DeliveryIntake::DeliveryIntake(os::EventLoop& loop, LauncherLink& link, Staging& staging,
                               std::function<void(Failure)> fail)
    : link_(link),
      staging_(staging),
      fail_(std::move(fail)),
      exchange_(loop, DeliveryExchange::Handlers{
                          [this](std::string_view frames) { return unpack(frames); },
                          [this] { return !ended_ && !staging_.in_progress(); },
                          [this](DeliveryReport report) { link_.send(std::move(report)); }}) {}

// Recorded before it is unpacked, which takes its bytes; served only when it is known to be whole.
void DeliveryIntake::on(DeliveryFrame delivery) {
  exchange_.record(delivery.frame);
  if (auto failure = stage(std::move(delivery.frame))) return fail_(std::move(*failure));
  exchange_.proceed();
}

// Frames of a delivery are unpacked as they arrive, from any source.
std::optional<Failure> DeliveryIntake::stage(Frame frame) {
  switch (frame.type) {
    case FrameType::kPart:
      return staging_.on_part(frame.payload);
    case FrameType::kShipFile:
      return staging_.on_ship_file(frame.payload);
    case FrameType::kData:
      return staging_.on_data(std::move(frame.payload));
    case FrameType::kDataEnd:
      return staging_.on_data_end();
    default:
      return protocol_failure("no delivery");
  }
}

// From another host, and what the launcher would have sent: the hash says so.
bool DeliveryIntake::unpack(std::string_view frames) {
  FrameReader reader;
  reader.feed(frames);
  while (true) {
    auto frame = reader.next();
    if (!frame) {
      fail_(protocol_failure(frame.error().message));
      return false;
    }
    if (!frame->has_value()) return true;
    if (auto failure = stage(std::move(**frame))) {
      fail_(std::move(*failure));
      return false;
    }
  }
}

// Which of its parts have to come.
void DeliveryIntake::on(const OfferTree& tree) {
  if (tree.parts.empty() && tree.environment.empty())
    return fail_(protocol_failure("a folder without parts"));
  // Before gigabytes travel for nothing.
  if (!tree.interpreter.empty() && ::access(tree.interpreter.c_str(), X_OK) != 0) {
    return fail_({std::string(failure::kShip),
                  "it has no " + tree.interpreter +
                      " that it can run, and the environment of --ship-env is made from that "
                      "Python",
                  "install it there, or make the environment from a Python that travels along: any "
                  "that is not below /usr (of uv, conda, pyenv)"});
  }
  link_.send(TreeState{staging_.find_missing_of_tree(tree)});
}

void DeliveryIntake::on(KeepDelivery order) {
  if (const Status good = exchange_.keep(std::move(order)); !good) {
    fail_(protocol_failure(good.error().message));
  }
}

// Takes time, and the launcher's other frames are read meanwhile. The order of the job comes after
// the launcher has received the end of this.
void DeliveryIntake::on(FetchDelivery order) {
  if (const Status good = exchange_.fetch(std::move(order)); !good) {
    fail_(protocol_failure(good.error().message));
  }
}

void DeliveryIntake::end() {
  // Often called from within unpack(): the exchange must not go on with the next one.
  ended_ = true;
  exchange_.forget("");
}

}  // namespace hora::launcher
