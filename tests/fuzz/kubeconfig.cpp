// A kubeconfig is whatever an operator has: a server to ask, or an error that says why not.
#include <cstdlib>

#include "corbd/kube/access.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace corbd;
  const auto access = kube::parse_kubeconfig(std::string(reinterpret_cast<const char*>(data), size), "/etc/k/");
  if (!access) {
    if (access.error().text.empty() || access.error().code != errc::invalid_argument) std::abort();
    return 0;
  }
  if (access->host.empty() || access->host.find('/') != std::string::npos) std::abort();
  for (const auto& file : {access->authorities_file, access->certificate_file, access->key_file})
    if (!file.empty() && !file.starts_with('/')) std::abort();
  return 0;
}
