// SPDX-License-Identifier: Apache-2.0
/* A long or bad cable for test hosts, for kernels that cannot do that to frames themselves (netem).
     delay_line DEVICE TAP MS PERCENT
   makes the TAP device and carries every frame from DEVICE to it and back, each MS milliseconds
   late and in order, but for three times PERCENT of them: as many come twice, are overtaken by
   later ones, and arrive with a wrong bit. Both carry whole segments of TCP, as a veth does, so
   that the delay is what it costs. Says "ready" once frames can pass. Ends when DEVICE is removed,
   and the TAP device goes with it.

   What is under way is bounded. A direction at its bound reads no more, so frames wait in the
   device, which drops those that it has no room for, as any link does that is full. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  kMostBytes = 64 << 20,     /* under way in one direction */
  kSocketBytes = 64 << 20,   /* that the kernel keeps for us while we do not run */
  kTapFrames = 16384,        /* the same of the TAP device, in frames */
  kLongestFrame = 128 << 10, /* a segment of TCP, its headers and that of virtio_net */
  kBurst = 64,               /* frames read at a time, before any is passed on */
};
static const int64_t kSecond = 1000000000;
static const int64_t kOvertaken = 5000000; /* how late those are that others overtake */

struct frame {
  struct frame* next;
  int64_t due;
  size_t bytes;
  char data[];
};

struct queue {
  struct frame* first;
  struct frame** end; /* where the next frame is linked in */
};

/* One direction. */
struct line {
  int from;
  int to;
  struct queue queues[2]; /* the second one: frames that others overtake */
  size_t bytes;
  int is_blocked; /* `to` takes no more at the moment */
};

static void fail(const char* what) {
  fprintf(stderr, "delay_line: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

static int open_tap(const char* name) {
  const int tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tap < 0) fail("/dev/net/tun");
  struct ifreq request = {0};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  if (ioctl(tap, TUNSETIFF, &request) != 0) fail(name);
  if (ioctl(tap, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN) != 0)
    fail(name);
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  request.ifr_qlen = kTapFrames;
  if (any < 0 || ioctl(any, SIOCSIFTXQLEN, &request) != 0) fail(name);
  close(any);
  return tap;
}

static int open_device(const char* name, unsigned index) {
  const int device = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (device < 0) fail("a packet socket");
  const int yes = 1;
  const int room = kSocketBytes;
  if (setsockopt(device, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof yes) != 0 ||
      setsockopt(device, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes) != 0 ||
      setsockopt(device, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0 ||
      setsockopt(device, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) {
    fail("a packet socket");
  }
  struct packet_mreq promiscuous = {.mr_ifindex = (int)index, .mr_type = PACKET_MR_PROMISC};
  if (setsockopt(device, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof promiscuous) !=
      0) {
    fail(name);
  }
  struct sockaddr_ll where = {
      .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)index};
  if (bind(device, (struct sockaddr*)&where, sizeof where) != 0) fail(name);
  return device;
}

static void add(struct line* line, int queue, int64_t due, const char* data, size_t bytes) {
  struct frame* frame = malloc(sizeof *frame + bytes);
  if (frame == NULL) fail("memory for a frame");
  frame->next = NULL;
  frame->due = due;
  frame->bytes = bytes;
  memcpy(frame->data, data, bytes);
  *line->queues[queue].end = frame;
  line->queues[queue].end = &frame->next;
  line->bytes += bytes;
}

/* Inverts a bit of the last byte. The sender has left the checksum to the device, so it is made
   first: the receiver would trust it. Not of a segment that the device has yet to cut. */
static void alter(char* data, size_t bytes) {
  struct virtio_net_hdr header;
  memcpy(&header, data, sizeof header);
  if (header.gso_type != VIRTIO_NET_HDR_GSO_NONE) return;
  if (header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
    unsigned char* const begin = (unsigned char*)data + sizeof header + header.csum_start;
    const size_t covered = bytes - sizeof header - header.csum_start;
    uint32_t sum = 0; /* with what the checksum's place holds, the sum of the pseudo header */
    for (size_t i = 0; i < covered; ++i) sum += i % 2 == 0 ? (uint32_t)begin[i] << 8 : begin[i];
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    begin[header.csum_offset] = (unsigned char)(~sum >> 8);
    begin[header.csum_offset + 1] = (unsigned char)~sum;
    memset(data, 0, sizeof header);
  }
  data[bytes - 1] ^= 1;
}

static void take_in(struct line* line, int64_t delay, double percent) {
  static char buffer[kLongestFrame];
  for (int i = 0; i < kBurst && line->bytes < kMostBytes; ++i) {
    const ssize_t got = read(line->from, buffer, sizeof buffer);
    if (got <= 0) return;
    const int64_t due = now() + delay;
    const double draw = percent > 0 ? drand48() * 100 : 100;
    if (draw < percent) add(line, 0, due, buffer, (size_t)got);
    const int is_late = draw >= percent && draw < 2 * percent;
    if (draw >= 2 * percent && draw < 3 * percent) alter(buffer, (size_t)got);
    add(line, is_late, due + (is_late ? kOvertaken : 0), buffer, (size_t)got);
  }
}

/* The queue whose first frame is due first. */
static struct queue* next(struct line* line) {
  const struct frame* const late = line->queues[1].first;
  const struct frame* const first = line->queues[0].first;
  return &line->queues[late != NULL && (first == NULL || late->due < first->due)];
}

/* A device that is down loses what it is given, as a cable that is unplugged. */
static void pass_on(struct line* line, int64_t time) {
  line->is_blocked = 0;
  for (struct queue* queue = next(line); queue->first != NULL && queue->first->due <= time;
       queue = next(line)) {
    struct frame* frame = queue->first;
    if (write(line->to, frame->data, frame->bytes) < 0 && errno == EAGAIN) {
      line->is_blocked = 1;
      return;
    }
    queue->first = frame->next;
    if (queue->first == NULL) queue->end = &queue->first;
    line->bytes -= frame->bytes;
    free(frame);
  }
}

/* When the next frame is due; a blocked direction waits for its device instead. */
static int64_t due(struct line* line) {
  const struct frame* const first = next(line)->first;
  return first != NULL && !line->is_blocked ? first->due : INT64_MAX;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: delay_line DEVICE TAP MS PERCENT\n");
    return 2;
  }
  const int64_t delay = (int64_t)(atof(argv[3]) * 1e6);
  const double percent = atof(argv[4]);
  const unsigned index = if_nametoindex(argv[1]);
  if (index == 0) fail(argv[1]);
  const int device = open_device(argv[1], index);
  const int tap = open_tap(argv[2]);
  /* A real cable waits for no processor and no coarse timer. */
  prctl(PR_SET_TIMERSLACK, 1UL);
  const struct sched_param ahead_of_all = {.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_FIFO, &ahead_of_all) != 0)
    (void)setpriority(PRIO_PROCESS, 0, -20);

  struct line lines[2] = {{.from = device, .to = tap}, {.from = tap, .to = device}};
  for (int i = 0; i < 4; ++i) {
    struct queue* const queue = &lines[i / 2].queues[i % 2];
    queue->end = &queue->first;
  }
  puts("ready");
  fflush(stdout);
  /* A packet socket reports that its device goes down, but not always that it is gone. */
  while (if_nametoindex(argv[1]) == index) {
    const int64_t check = now() + kSecond;
    for (int64_t time = now(); time < check; time = now()) {
      int64_t wake = check;
      struct pollfd fds[2];
      for (int i = 0; i < 2; ++i) {
        pass_on(&lines[i], time);
        if (due(&lines[i]) < wake) wake = due(&lines[i]);
      }
      for (int i = 0; i < 2; ++i) {
        const struct line* other = &lines[1 - i]; /* it ends where this one begins */
        fds[i].fd = lines[i].from;
        fds[i].events =
            (short)((lines[i].bytes < kMostBytes ? POLLIN : 0) | (other->is_blocked ? POLLOUT : 0));
      }
      int64_t wait = wake - now();
      if (wait < 0) wait = 0;
      const struct timespec timeout = {wait / kSecond, wait % kSecond};
      if (ppoll(fds, 2, &timeout, NULL) < 0 && errno != EINTR) fail("poll");
      for (int i = 0; i < 2; ++i) {
        if (fds[i].revents != 0) take_in(&lines[i], delay, percent);
      }
    }
  }
  return 0;
}
