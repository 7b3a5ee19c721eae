#include "corbd/core/expect.hpp"

#include <cstdio>
#include <cstdlib>

namespace corbd {

void broken_expectation(const char* sentence, const std::source_location& where) noexcept {
  std::fprintf(stderr, "corbd: %s: expected in %s (%s:%u); the process ends, and the next start heals its devices\n",
               sentence, where.function_name(), where.file_name(), static_cast<unsigned>(where.line()));
  std::abort();
}

}  // namespace corbd
