// Makes an answer's bytes as one string. Beast's own writing in pieces would be a fifth of this room's compile time.
#pragma once

#include <boost/beast/http.hpp>
#include <sstream>
#include <string>

namespace corbd::http {

inline std::string wire_text(const boost::beast::http::response<boost::beast::http::string_body>& message,
                             bool header_only) {
  std::ostringstream header;
  header << message.base();
  return header.str() + (header_only ? std::string() : message.body());
}

}  // namespace corbd::http
