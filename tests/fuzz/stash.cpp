// A stash that is read is written as one that reads the same.
#include "corbd/cephcsi/stash.hpp"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd::cephcsi;
  const auto stash = parse_stash(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!stash) return 0;
  const auto again = parse_stash(encode(*stash));
  if (!again || *again != *stash) std::abort();
  return 0;
}
