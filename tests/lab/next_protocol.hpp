// Included before each file of the room `handover`: a build that speaks the next version of the conversation.
#pragma once

#include "messages.hpp"

namespace corbd::handover {
inline constexpr int kNextProtocol = kProtocol + 1;
}
#define kProtocol kNextProtocol
