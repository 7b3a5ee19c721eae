// [failure:20]
// A record that decodes must encode to one that decodes to the same.
#include <cstdlib>

#include "corbd/plan/record.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd::plan;
  const auto record = decode(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!record) return 0;
  const auto again = decode(encode(*record));
  if (!again || *again != *record) std::abort();
  return 0;
}
