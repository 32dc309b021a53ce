// SPDX-License-Identifier: Apache-2.0
// The abilities of this installation, for --check-build: the facts, and their two printed forms.
// [pure]
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hora::launcher {

// One backend of libhora, as the library itself says.
struct BackendFact {
  bool loads = false;   // built, and all its dependencies are here
  bool usable = false;  // on this machine, by one process alone
  std::string version;
  std::string why_not;
};

struct FeatureFact {
  std::string name;           // "GLOO"
  bool built = false;         // a part of this installation uses it
  bool loads = false;         // and can be loaded here, now
  std::string version_built;  // of the library that it was built against
  std::string version_found;  // of the library that is found here now; empty: none or not reported
  std::string path;           // of that library; empty: none was found
  std::string note;           // why it was not built or does not load
};

// The files sent to hosts with one kind of processor.
struct MachineFact {
  std::string machine;      // "x86_64"
  std::string least_glibc;  // that they need; may be empty
  std::string fault;        // why they cannot be used; empty: they can
};

// A vendor's library of this machine that hosts without one can be sent.
struct VendorFact {
  std::string name;         // "Open MPI"
  std::string path;         // of the library
  std::int64_t bytes = 0;   // of all its files, unpacked
  std::string least_glibc;  // that hosts need; may be empty
  std::string fault;        // why it cannot be sent; empty: it can
};

struct BuildFacts {
  std::string version;                // of Hora
  std::string title;                  // the heading of the text
  std::string runtime_path;           // libhora.so of the bundle
  std::vector<MachineFact> machines;  // this machine's first; empty: nothing is installed
  std::string runtime_error;          // why it does not load; empty: it does
  std::vector<std::string>
      frameworks;  // "tensorflow", "torch", ...: those that can be imported here
  std::map<std::string, BackendFact> backends;  // by id
  std::vector<FeatureFact> features;
  std::vector<VendorFact> vendors;
  bool mpi_engine = false;  // horarun can start ranks by mpirun

  bool loads(const std::string& backend) const;
};

// Three tables of boxes, in the layout that scripts parse. Verbose: a blank line before them, and
// details after each box.
std::string format_build_facts(const BuildFacts& facts, bool verbose);
// One JSON document; "schema": 1.
std::string format_build_facts_json(const BuildFacts& facts);

}  // namespace hora::launcher
