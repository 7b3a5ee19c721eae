// `corbd top` on a terminal, or once.
#pragma once

#include "caller.hpp"
#include "corbd/cli/options.hpp"
#include "corbd/v1/admin.grpc.pb.h"

namespace corbd::cli {

/// Exit code. On a terminal it ends with q, Ctrl-C or a signal, and leaves the terminal as it was.
int watch_top(Caller<v1::Admin>& asking, const Admin& ask);

}  // namespace corbd::cli
