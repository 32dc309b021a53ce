// SPDX-License-Identifier: Apache-2.0
// A kernel without buffer space for what is sent. Only the sends that would return rather than wait
// (MSG_DONTWAIT) are refused: those of listeners and tree nodes, not a rank's own.
#pragma once

namespace hora::test {

// The next `count` sends of this process fail with `error`.
void refuse_sends(int count, int error);
int refused_sends_left();

}  // namespace hora::test
