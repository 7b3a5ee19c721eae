// Turns errno of calls that touch a device into our errors.
#pragma once

#include <string>

#include "corbd/core/result.hpp"

namespace corbd::host {

/// Makes "doing: No such device"; `error` is an errno.
Error failure(std::string doing, int error);

}  // namespace corbd::host
