// errno of the calls that touch a device, as errors of ours.
#pragma once

#include <string>

#include "corbd/core/result.hpp"

namespace corbd::host {

/// "doing: No such device"; `error` is an errno.
Error failure(std::string doing, int error);

}  // namespace corbd::host
