// A chaos test cuts hosts off with nftables. The kernel deletes a table with the socket that owns
// it, so a cut can never outlive the agent, not even one that is killed.
#include "launcher/agent/network_cut.h"

#include <linux/netlink.h>
#include <sys/socket.h>

#include <cerrno>

#include "launcher/agent/nft_messages.h"

namespace hora::launcher {

namespace {

// Creates the table and returns the socket that owns it.
Result<os::Fd> make_table(const CutOrder& cut, const std::string& name, CutTable kind) {
  const auto batch = cut_batch(cut, name, kind);
  if (!batch) return batch.error();
  os::Fd owner(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
  if (!owner.valid()) return errno_error(errno, "the kernel has no nftables");
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(owner.get(), batch->data(), batch->size(), 0,
               reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) < 0) {
    return errno_error(errno, "making a table of nftables");
  }
  // The kernel handles the batch during sendto(), so its answer is there already.
  while (true) {
    std::string answer(8'192, '\0');
    const ssize_t got = ::recv(owner.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(errno, "the kernel does not answer about nftables");
    answer.resize(static_cast<std::size_t>(got));
    const int said = batch_answer(answer);
    if (said == 0) return owner;
    // Messages that are no answer (-1) are skipped.
    if (said > 0) return errno_error(said, "making a table of nftables");
  }
}

}  // namespace

NetworkCuts::NetworkCuts(std::vector<CutOrder> cuts, std::string word)
    : cuts_(std::move(cuts)), word_(std::move(word)) {}

// Checks the permission before the job starts: a trial table is dormant, filters nothing and
// disappears with its socket at the end of each turn.
Status NetworkCuts::try_out() const {
  for (const CutOrder& cut : cuts_) {
    const auto trial = make_table(cut, "hora-trial-" + word_, CutTable::kTrial);
    if (!trial) return trial.error();
  }
  return Ok{};
}

Status NetworkCuts::cut(std::size_t index) {
  if (index >= cuts_.size()) return make_error(ErrorCode::kUsage, "a cut that was not announced");
  if (active_.count(index) != 0) return Ok{};
  auto owner = make_table(cuts_[index], "hora-cut-" + word_ + "-" + std::to_string(index),
                          CutTable::kActive);
  if (!owner) return std::move(owner).error();
  active_.emplace(index, *std::move(owner));
  return Ok{};
}

// Closing the socket removes the table.
void NetworkCuts::heal(std::size_t index) { active_.erase(index); }

}  // namespace hora::launcher
