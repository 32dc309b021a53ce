// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/http/message.h"

namespace hora::http {

// The names are case-sensitive on the wire.
std::string_view method_name(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPut:
      return "PUT";
    case Method::kDelete:
      return "DELETE";
    // Only a label in the metrics: the server does not keep the names of methods that it refuses.
    case Method::kOther:
      break;
  }
  return "other";
}

// Only for people: a client decides by the number.
std::string_view reason_phrase(int status) {
  // Only the statuses that the server sends. Clients ignore the phrase (RFC 9112, 4), but people
  // read it in traces.
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 408:
      return "Request Timeout";
    case 411:
      return "Length Required";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return "";
  }
}

}  // namespace hora::http
