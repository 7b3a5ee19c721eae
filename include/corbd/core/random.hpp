// Jitter. Not for secrets.
#pragma once

namespace corbd {

/// Uniform in [0, 1). Any thread.
double random();

}  // namespace corbd
