#include "corbd/core/expect.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>

#include "corbd/core/process.hpp"

namespace corbd {

void broken_expectation(const char* sentence, const std::source_location& where) noexcept {
  std::array<char, PIPE_BUF> text{};
  const int length =
      std::snprintf(text.data(), text.size(),
                    "corbd: %s: expected in %s (%s:%u); the process ends, and the next start heals its devices\n",
                    sentence, where.function_name(), where.file_name(), static_cast<unsigned>(where.line()));
  if (stderr_takes_text())
    write_to_stderr({text.data(), std::min(text.size() - 1, static_cast<std::size_t>(std::max(length, 0)))});
  std::abort();
}

}  // namespace corbd
