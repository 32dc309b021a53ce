// SPDX-License-Identifier: Apache-2.0
// Nothing of the program is copied: the kernel sends from the file, which is opened once. What runs
// is served also when its name has gone, or leads to a newer one by now. Peers have a position of
// their own in it.
#include "launcher/agent/image_server.h"

#include <fcntl.h>
#include <sys/sendfile.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "rendezvous/base/hex.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kRequest = "HORA-IMAGE-1 ";
constexpr std::size_t kMostRequest = 128;
constexpr std::size_t kSentPerTurn = 256 * 1024;
// A host asks once it is connected, and a shell may take its time to say a line.
constexpr PeerLimits kLimits{
    .strangers = 64,
    .served = 16,
    .talk_patience = std::chrono::seconds(3),
    .serve_patience = std::chrono::seconds(5),
};

}  // namespace

class ImageServer::Talk : public PeerTalk {
 public:
  explicit Talk(const ImageServer& server) : server_(server) {}

  std::size_t awaited() const override { return server_.request_.size(); }

  // A wrong line is known by its length alone, and answered by the end. So is a right one that
  // finds no room: who fetches has other sources, and the launcher behind them.
  Verdict hear(int, std::string_view line) override {
    if (!equals_in_constant_time(line, server_.request_)) return Verdict::kGoes;
    return server_.peers_->has_room() ? Verdict::kIsServed : Verdict::kGoes;
  }

  ssize_t send_some(int fd) override {
    return ::sendfile(fd, server_.program_.get(), &sent_, kSentPerTurn);
  }

 private:
  const ImageServer& server_;
  off_t sent_ = 0;
};

Result<std::unique_ptr<ImageServer>> ImageServer::create(os::EventLoop& loop,
                                                         const std::string& token,
                                                         const std::string& program) {
  std::string request = std::string(kRequest) + token + '\n';
  if (token.empty() || request.size() > kMostRequest) {
    return make_error(ErrorCode::kUsage, "a token that no launcher sends");
  }
  os::Fd file(::open(program.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(errno, "opening " + program);
  std::unique_ptr<ImageServer> server(new ImageServer(std::move(file), std::move(request)));
  auto peers = PeerServer::create(loop, kLimits,
                                  [raw = server.get()] { return std::make_unique<Talk>(*raw); });
  if (!peers) return std::move(peers).error();
  server->peers_ = std::move(*peers);
  return server;
}

ImageServer::ImageServer(os::Fd program, std::string request)
    : program_(std::move(program)), request_(std::move(request)) {}

}  // namespace hora::launcher
