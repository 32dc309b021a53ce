// SPDX-License-Identifier: Apache-2.0
// Each thread of this process writes its own stack when the agent sends it a signal. The handler
// may interrupt any instruction, an allocation included, so it uses no lock and no memory of its
// own: it takes a slot of the shared area by one atomic increment.
#include "collectives/trace/stack_writer.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <cerrno>
#include <cstddef>
#include <mutex>

#include "rendezvous/contract/flight_record.h"
#include "rendezvous/contract/stack_record.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/mapped_part.h"
#include "rendezvous/os/stack_signal.h"

namespace hora::collectives {

namespace {

using rendezvous::FlightPage;
using rendezvous::kStackAreaBytes;
using rendezvous::kStackFrames;
using rendezvous::kStackThreads;
using rendezvous::StackArea;
using rendezvous::StackSlot;

std::atomic<StackArea*> area_in_use{nullptr};

struct Walk {
  StackSlot* slot = nullptr;
  bool beyond_signal = false;  // the frames of the handler itself are passed over
};

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  int before_instruction = 0;
  const auto pc = static_cast<std::uint64_t>(_Unwind_GetIPInfo(context, &before_instruction));
  // The unwinder marks the frame below the signal: its address is that of an instruction, not of a
  // return.
  if (before_instruction != 0) walk.beyond_signal = true;  // the interrupted function
  if (!walk.beyond_signal || pc == 0) return _URC_NO_REASON;
  if (walk.slot->frames >= kStackFrames) return _URC_END_OF_STACK;
  // A return address may already belong to the next function, so record the address of the call.
  walk.slot->pcs[walk.slot->frames++] = before_instruction != 0 ? pc : pc - 1;
  return _URC_NO_REASON;
}

void write_stack(int, siginfo_t*, void*) {
  // The interrupted code may be about to read errno.
  const int saved = errno;
  StackArea* area = area_in_use.load(std::memory_order_acquire);
  if (area != nullptr) {
    const std::uint64_t request = area->request.load(std::memory_order_acquire);
    const std::uint64_t index = area->taken.fetch_add(1, std::memory_order_relaxed);
    if (index < kStackThreads) {
      StackSlot& slot = area->slots[index];
      slot.frames = 0;
      slot.tid = static_cast<std::uint32_t>(::syscall(SYS_gettid));
      slot.thread_id = static_cast<std::uint64_t>(::pthread_self());
      Walk walk{&slot};
      _Unwind_Backtrace(take_frame, &walk);
      // Last, with release: a slot whose request number is current is complete.
      std::atomic_ref(slot.request).store(request, std::memory_order_release);
    }
  }
  errno = saved;
}

// Maps the stack area of that page; not valid if the file has none.
os::MappedPart map_area(const os::Fd& file, int page) {
  struct stat found {};
  std::uint64_t offset = 0;
  const auto place = static_cast<off_t>(page) * static_cast<off_t>(rendezvous::kFlightPageBytes) +
                     static_cast<off_t>(offsetof(FlightPage, stacks_offset));
  // The offset comes from a file that another process writes: every bound is checked before it is
  // mapped.
  if (!file.valid() || ::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
      ::pread(file.get(), &offset, sizeof offset, place) != sizeof offset || offset == 0 ||
      offset % rendezvous::kFlightPageBytes != 0 ||
      found.st_size < static_cast<off_t>(kStackAreaBytes) ||
      offset > static_cast<std::uint64_t>(found.st_size) - kStackAreaBytes) {
    return {};
  }
  os::MappedPart mapped(file.get(), static_cast<off_t>(offset), kStackAreaBytes);
  if (mapped.valid() &&
      static_cast<const StackArea*>(mapped.data())->magic != rendezvous::kStackMagic) {
    return {};
  }
  return mapped;
}

}  // namespace

void offer_stacks(const std::string& path, int page) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  if (path.empty() || page < 0 || area_in_use.load() != nullptr) return;
  const os::Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  os::MappedPart mapped = map_area(file, page);
  if (!mapped.valid()) return;
  // The program or a library may use this signal itself; then its stacks are not available.
  struct sigaction before {};
  if (::sigaction(os::stack_signal(), nullptr, &before) != 0 || before.sa_handler != SIG_DFL) {
    return;
  }
  // The unwinder's first walk may allocate while it finds its tables, so it happens here and not in
  // a signal handler.
  StackSlot scratch;
  Walk walk{&scratch};
  _Unwind_Backtrace(take_frame, &walk);
  auto* const area = static_cast<StackArea*>(mapped.data());
  mapped.keep();  // a handler may run at any later moment
  area_in_use.store(area, std::memory_order_release);
  struct sigaction action {};
  action.sa_sigaction = write_stack;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  ::sigfillset(&action.sa_mask);
  // The agent signals only a process whose pid is here: the default action of the signal would end
  // any other.
  if (::sigaction(os::stack_signal(), &action, nullptr) == 0) area->pid.store(::getpid());
}

}  // namespace hora::collectives
