// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/transport.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace hora::launcher {

// Each transport defines one function, at the end of its file. The generated hora_transports.inc
// has one line per transport; the macros below choose what such a line becomes. A call, not a
// static object that registers itself, since the linker drops a file of an archive without
// references to it.
#define HORA_TRANSPORT(name) const TransportDescriptor* name##_transport_descriptor();
#define HORA_INTERNAL_TRANSPORT(name) HORA_TRANSPORT(name)
#include "hora_transports.inc"
#undef HORA_TRANSPORT

namespace {

template <typename Predicate>
const TransportDescriptor& the_one(Predicate predicate) {
  const auto all = transports();
  return **std::find_if(all.begin(), all.end(), predicate);
}

std::string selected_by(const TransportDescriptor& each) {
  if (!each.remote) return "hosts that are this machine";
  const std::string option = "`--transport " + std::string(each.name) + "`";
  if (each.name == JobSpec{}.transport) return "other hosts, and " + option;
  return each.takes_command ? "`--rsh COMMAND`" : option;
}

}  // namespace

std::span<const TransportDescriptor* const> transports() {
#define HORA_TRANSPORT(name) name##_transport_descriptor(),
  static const TransportDescriptor* const all[] = {
#include "hora_transports.inc"
  };
#undef HORA_TRANSPORT
  return all;
}

const TransportDescriptor* find_transport(std::string_view name) {
  for (const TransportDescriptor* each : transports()) {
    if (each->remote && each->name == name) return each;
  }
  return nullptr;
}

const TransportDescriptor& local_transport() {
  return the_one([](const TransportDescriptor* each) { return !each->remote; });
}

const TransportDescriptor& command_transport() {
  return the_one([](const TransportDescriptor* each) { return each->takes_command; });
}

std::string transport_reference() {
  std::string out =
      "| transport | selected by | how it reaches a host | options that it reads |\n"
      "|---|---|---|---|\n";
  for (const TransportDescriptor* each : transports()) {
    std::string options;
    for (const std::string_view option : split(each->options, ' ')) {
      if (!option.empty()) options += (options.empty() ? "`" : ", `") + std::string(option) + "`";
    }
    out += "| " + std::string(each->name) + " | " + selected_by(*each) + " | " +
           std::string(each->how) + " | " + (options.empty() ? "-" : options) + " |\n";
  }
  return out;
}

}  // namespace hora::launcher
