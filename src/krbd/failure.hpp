// Explains the kernel's refusal to map an image, with the way out.
#pragma once

#include "corbd/core/result.hpp"
#include "corbd/device/kernel_client.hpp"

namespace corbd::krbd {

/// `failed`: errno of the write to the rbd bus.
Error not_mapped(const device::MapArgs& args, int failed);

}  // namespace corbd::krbd
