// Address and credentials of the API server, from the pod's service account or a kubeconfig
// (docs/sources.md#api-credentials).
#pragma once

#include <functional>
#include <string>

#include "corbd/core/secret.hpp"
#include "corbd/http/client.hpp"

namespace corbd::kube {

/// A file is read anew each time, because kubelet replaces it. If there are both a file and a text, the text counts,
/// but for a token the file.
struct Access {
  std::string kubeconfig;  ///< the file with all of this, which may be rewritten; empty: no file
  std::string host;
  std::uint16_t port = 443;
  bool tls = true, insecure = false;
  std::string authorities_file, authorities;  ///< PEM
  std::string token_file;
  Secret token;
  std::string certificate_file, certificate;  ///< PEM, client certificate
  std::string key_file;
  Secret key;
};

using Environment = std::function<std::string(const char* name)>;  ///< "": not set

/// Reads the pod's service account. failed_precondition if this process is in no pod.
result<Access> in_cluster(const Environment& environment,
                          const std::string& folder = "/var/run/secrets/kubernetes.io/serviceaccount");
/// Reads the current context of a kubeconfig: token, token file or client certificate. Commands and providers that make
/// tokens are refused by name.
result<Access> parse_kubeconfig(const std::string& text, const std::string& folder);
result<Access> read_kubeconfig(const std::string& path);

/// Reads the files. The peer's `host` is the address to connect to.
result<http::Peer> peer_of(const Access& access);
/// Returns the token without white space at its ends; empty if there is none.
result<Secret> read_token(const Access& access);

}  // namespace corbd::kube
