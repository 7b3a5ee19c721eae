// Makes text valid for the wire. A receiver refuses a proto3 string that is not valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace corbd::rpc {

/// Returns the text with a question mark for each byte that is not part of a valid sequence (RFC 3629: no overlong
/// forms, no surrogates).
std::string valid_utf8(std::string_view text);

}  // namespace corbd::rpc
