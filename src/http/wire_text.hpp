// A message as it goes over the wire, as one string. Beast's own writing in pieces would be a fifth of what the room
// costs to compile.
#pragma once

#include <boost/beast/http.hpp>
#include <sstream>
#include <string>

namespace corbd::http {

template <bool is_request>
std::string wire_text(const boost::beast::http::message<is_request, boost::beast::http::string_body>& message,
                      bool header_only = false) {
  std::ostringstream header;
  header << message.base();
  return header.str() + (header_only ? std::string() : message.body());
}

}  // namespace corbd::http
