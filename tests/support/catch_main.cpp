// SPDX-License-Identifier: Apache-2.0
// Version 3 brings its own main().
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#include "tests/support/catch.h"
#endif

#ifdef __SANITIZE_THREAD__
// Gloo is not built with the sanitizer. The destructor of its buffers waits until the last owner of
// a shared_ptr has let go (gloo/common/memory.h), which orders what it does behind what its own
// thread did; the sanitizer sees the destruction and not the wait, and then what becomes of the
// memory that was received into or sent. Shown by tests of lost ranks: elsewhere an operation has
// ended before its buffer goes.
// The sanitizer forgets who has written the name of a library that dl_iterate_phdr() shows, since
// it does not see the lock of the loader; but it leaves out the NUL at the name's end.
// A report without the other thread's stack cannot be distinguished from others: it remembers as
// much as it can. Ranks of a test are forked, and begin threads; from GCC 13 on that has to be
// allowed.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "history_size=7:die_after_fork=0"; }
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:gloo::transport::tcp::UnboundBuffer::~UnboundBuffer\n"
         "race:std::default_delete<gloo::transport::UnboundBuffer>\n"
         "race:gloo::transport::tcp::Pair::read\n"
         "race:gloo::transport::tcp::Pair::write\n"
         "race:hora::collectives::mpi::library_in_process\n";
}
#endif
