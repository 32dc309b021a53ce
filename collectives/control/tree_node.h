// SPDX-License-Identifier: Apache-2.0
// The leaders of the hosts relay the control messages of a large job: each collects those of the
// ranks of its host and of the leaders below it, and passes them on together; messages from rank 0
// go the other way. This is the part of a leader that does so, in a thread of its own: the runtime
// may be blocked in a collective, and the messages of others must not wait for that. Rank 0 is the
// root: instead of a node above, its node has the rank's own runtime.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "collectives/control/door.h"
#include "collectives/control/frame_buffer.h"
#include "collectives/control/tcp_control.h"
#include "collectives/control/tree_frames.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

class TreeNode {
 public:
  struct Start {
    ControlIdentity self;
    os::Fd listener;  // where those below come in
    os::Fd above;     // the connection to the node above; on rank 0, to this rank's runtime
    FrameBuffer above_in;
    int rank_above = 0;
    os::Fd own;    // to this rank's runtime; not on rank 0
    os::Fd alarm;  // on rank 0: its stream ends when a rank is gone
  };
  static Result<std::unique_ptr<TreeNode>> start(Start start);
  // Ends when all has been passed on and the others have hung up, or soon.
  ~TreeNode();
  TreeNode(const TreeNode&) = delete;
  TreeNode& operator=(const TreeNode&) = delete;

 private:
  using Frame = std::shared_ptr<const std::string>;
  // A connection: to the node above, to a rank, or to a node below.
  struct Link {
    std::uint32_t number = 0;
    os::Fd socket;
    FrameBuffer in;
    std::deque<Frame> out;
    std::size_t sent = 0;  // bytes of the first frame
    int rank = 0;          // at the other end
    bool carries = false;  // the messages of other ranks, too
    Ranks behind;          // those whose messages go by this link
    bool over = false;     // it says nothing more
    bool deaf = false;     // it receives nothing more
    bool ends = false;     // and will not, when `out` is empty
    bool watching_output = false;
    bool spoke = false;  // since the words were last passed on
  };

  explicit TreeNode(Start start);
  bool is_root() const { return start_.self.rank == 0; }
  Status open();
  void run();
  void wait();
  bool is_done() const;
  Status watch_input(int fd, std::uint32_t number) const;
  Link& add(std::uint32_t number, os::Fd socket, FrameBuffer in, int rank);
  void admit();
  void read_from(std::uint32_t number);
  void handle(std::uint32_t number);
  void on_passage(std::string_view message);
  void on_words(std::uint32_t number, std::string_view message);
  void join(std::uint32_t number, Word word);
  void lose(std::uint32_t number, const std::string& how);
  void lose_above(const std::string& how);
  void send_to_all_below(std::string_view text, const Frame& passage);
  void collect(std::uint32_t number, Word word);
  bool may_wait(const Word& word) const;
  void pass_on();
  void push(Link& link, Frame frame);
  void write_to(Link& link);
  void watch(Link& link);
  void end(Link& link);

  Start start_;
  std::optional<HandshakeAcceptor> door_;  // until the welcome
  os::Fd epoll_;
  os::Fd stop_;
  std::map<std::uint32_t, Link> links_;
  std::unordered_map<std::int32_t, std::uint32_t> route_;  // by rank: the link that leads there
  std::uint32_t next_link_;
  WordCollector words_;
  Deadline due_ = Deadline::max();  // when the words are passed on at the latest
  bool any_left_ = false;
  bool welcomed_ = false;
  std::optional<Deadline> stopping_;
  std::thread thread_;
};

}  // namespace hora::collectives
