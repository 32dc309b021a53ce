// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes the control messages of the negotiation.  [pure]
// Decoding fails for anything that encoding cannot have produced.
#pragma once

#include <string>
#include <string_view>

#include "collectives/negotiation/request.h"
#include "collectives/negotiation/wire.h"

namespace hora::collectives {

void encode_request(WireWriter& out, const Request& request);
bool decode_request(WireReader& in, Request& request);

// `receiver` is the set index of the rank that gets the bytes (it decides an alltoall's column).
void encode_response(WireWriter& out, const Response& response, int receiver);
bool decode_response(WireReader& in, Response& response);

}  // namespace hora::collectives
