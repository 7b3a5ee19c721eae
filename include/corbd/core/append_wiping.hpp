// Lets a text with a secret grow piece by piece.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "corbd/core/secret.hpp"

namespace corbd {

/// Appends without leaving a copy behind if the text moves to a larger buffer.
inline void append_wiping(std::string& text, std::string_view piece) {
  if (text.size() + piece.size() > text.capacity()) {
    std::string larger;
    larger.reserve(2 * (text.size() + piece.size()));
    larger.append(text);
    std::swap(larger, text);
    wipe(larger);
  }
  text.append(piece);
}

}  // namespace corbd
