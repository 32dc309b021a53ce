#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# package:   nlohmann-json3-dev 3.11.2 (Debian 12)
# behaviour: get<T>() and value() convert a number to any type of numbers without a check: what does not fit loses its upper
#            bits, a negative number becomes a large one, a fraction is cut off, and true is 1. Only what is not a number
#            at all is a type_error.
# guess:     out_of_range or type_error; the library has both, and throws out_of_range for 1e400 when it parses
# seen:      2026-11-30, the lines that the script compares
# relies:    launcher/doctor/doctor.cpp and launcher/control/control_protocol.cpp ask for type and range before get()
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
command -v apt-get g++ >/dev/null || { echo "needs apt-get and g++"; exit 77; }
chmod 755 "$folder"
(cd "$folder" && apt-get -o APT::Sandbox::User=root download -qq nlohmann-json3-dev=3.11.2-2 && dpkg -x ./*.deb root)
cat >"$folder/read.cpp" <<'END_OF_SOURCE'
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>

template <typename Number>
void show(const char* type, const char* text) {
  std::cout << type << " of " << text << ": ";
  try {
    std::cout << nlohmann::json::parse(text).get<Number>() << "\n";
  } catch (const nlohmann::json::exception& error) {
    std::cout << "error " << error.id << "\n";
  }
}

int main() {
  show<int>("int", "4294967298");
  show<std::uint16_t>("uint16_t", "70000");
  show<unsigned>("unsigned", "-1");
  show<int>("int", "2.9");
  show<int>("int", "true");
  show<int>("int", "\"2\"");
  show<double>("double", "1e400");
}
END_OF_SOURCE
g++ -I"$folder/root/usr/include" "$folder/read.cpp" -o "$folder/read"
seen=$("$folder/read")
echo "$seen"
[ "$seen" = "int of 4294967298: 2
uint16_t of 70000: 4464
unsigned of -1: 4294967295
int of 2.9: 2
int of true: 1
int of \"2\": error 302
double of 1e400: error 406" ] || { echo "nlohmann's JSON no longer behaves as described" >&2; exit 1; }
