// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/html.h"

namespace hora {

namespace {

constexpr std::string_view kStyle =
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;"
    "color:#222;overflow-wrap:anywhere}"
    "h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}"
    "pre{background:#f4f4f4;padding:.8em;white-space:pre-wrap}"
    ".fix{white-space:pre-line;border-left:4px solid #1b6e3c;padding:.2em .8em}"
    ".bad{color:#b00020}.ok{color:#1b6e3c}.warning{color:#8a5a00}.ended{color:#6b6b6b}"
    "table{border-collapse:collapse;width:100%}small{color:#6b6b6b}"
    "td,th{text-align:left;padding:.2em .6em;border-bottom:1px solid #e4e4e4;vertical-align:top}"
    ".lane{position:relative;height:1.2em;background:#f4f4f4}"
    ".lane span{position:absolute;top:0;height:100%}"
    ".bar-bad{background:#b00020}.bar-ok{background:#4c8c4a}.bar-ended{background:#9aa2ad}"
    ".bar-late{background:#b8860b}"
    ".chart{width:100%;height:4em;background:#f4f4f4}"
    ".chart polyline{fill:none;stroke:#4c8c4a;stroke-width:2;vector-effect:non-scaling-stroke}"
    ".pictures{display:flex;flex-wrap:wrap;gap:1em}"
    ".pictures svg{flex:1 1 22em;min-width:0;max-width:100%;height:auto}"
    "i{display:inline-block;width:.8em;height:.8em;margin:0 .3em 0 .8em}"
    // On a phone each cell has a row, with the heading of its column before it.
    "@media(max-width:40em){table,tbody,tr,td{display:block}th{display:none}"
    "td{border:0;padding:0 0 .2em}tr{border-bottom:1px solid #e4e4e4;padding:.4em 0}"
    "td[data-is]::before{content:attr(data-is) \": \";color:#6b6b6b}}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}pre,.chart,.lane{"
    "background:"
    "#"
    "262626}td,th,tr{border-color:#333}.bad{color:#ff6b81}.ok{color:#6fd08c}.warning{color:#e0b050}"
    ".ended,small,td[data-is]::before{color:#9aa2ad}}";

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') {
      out += '?';
    } else {
      out += c;
    }
  }
  return out;
}

std::string html_section(std::string_view title) {
  return "<h2>" + html_escaped(title) + "</h2>\n";
}

std::string html_page(std::string_view title, std::string_view body) {
  return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
         "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>" +
         html_escaped(title) + "</title><style>" + std::string(kStyle) + "</style></head><body>\n" +
         std::string(body) + "</body></html>\n";
}

}  // namespace hora
