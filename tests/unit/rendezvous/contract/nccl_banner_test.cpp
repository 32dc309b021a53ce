// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/contract/nccl_banner.h"

#include <string>

#include "tests/support/catch.h"

namespace hora {
namespace {

using namespace std::string_literals;

TEST_CASE("NCCL's banner names the CUDA that it was built for") {
  CHECK(cuda_of_nccl("\x7f"
                     "ELF\0\0NCCL version 2.28.9+cuda13.0\0more"s) == 13000);
  CHECK(cuda_of_nccl("NCCL version 2.8.4+cuda10.2") == 10020);
  CHECK(cuda_of_nccl("NCCL version 2.18.5-nightly+cuda12.1\n"s) == 12010);
}

TEST_CASE("NCCL's banner: what only begins like it says nothing") {
  CHECK(cuda_of_nccl("") == 0);
  CHECK(cuda_of_nccl("Mismatched NCCL version detected : rank %d\0NCCL version 2.21.5+cuda12.4"s) ==
        12040);
  CHECK(cuda_of_nccl("NCCL version 2.21.5") == 0);
  CHECK(cuda_of_nccl("NCCL version 2.21.5+cuda") == 0);
  CHECK(cuda_of_nccl("NCCL version 2.21.5+cuda12") == 0);
  CHECK(cuda_of_nccl("NCCL version 2.21.5+cuda12.") == 0);
  CHECK(cuda_of_nccl("NCCL version 2.21.5+cuda99999999999.0") == 0);
  CHECK(cuda_of_nccl("NCCL version \0+cuda12.4"s) == 0);
}

}  // namespace
}  // namespace hora
