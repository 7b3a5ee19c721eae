#include "corbd/kube/access.hpp"

#include <algorithm>
#include <charconv>

#include "corbd/core/file.hpp"

namespace corbd::kube {
namespace {

constexpr std::size_t kMaxFile = 1 << 20;

Secret trimmed(std::string text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return {};
  Secret kept(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
  wipe(text);
  return kept;
}

result<std::string> text_or_file(const std::string& text, const std::string& file) {
  if (!text.empty() || file.empty()) return text;
  auto read = read_file(file, kMaxFile);
  if (!read) return with_context("reading what the API server asks for", read.error());
  return read;
}

}  // namespace

result<Access> in_cluster(const Environment& environment, const std::string& folder) {
  Access access;
  access.host = environment("KUBERNETES_SERVICE_HOST");
  const std::string port = environment("KUBERNETES_SERVICE_PORT");
  if (access.host.empty() || port.empty())
    return Error{errc::failed_precondition,
                 "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is not a pod, and no "
                 "kubeconfig was given"};
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), access.port);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size())
    return Error{errc::invalid_argument, "KUBERNETES_SERVICE_PORT is '" + port + "', which is not a port"};
  access.authorities_file = folder + "/ca.crt";
  access.token_file = folder + "/token";
  return access;
}

result<Access> read_kubeconfig(const std::string& path) {
  const auto text = read_file(path, kMaxFile);
  if (!text) return text.error();
  auto access = parse_kubeconfig(*text, path.substr(0, path.rfind('/') + 1));
  if (!access) return with_context(path, access.error());
  access->kubeconfig = path;
  return access;
}

result<http::Peer> peer_of(const Access& access) {
  http::Peer peer;
  peer.host = access.host;
  peer.port = access.port;
  peer.tls = access.tls;
  peer.insecure = access.insecure;
  auto authorities = text_or_file(access.authorities, access.authorities_file);
  if (!authorities) return authorities.error();
  peer.authorities = std::move(*authorities);
  auto certificate = text_or_file(access.certificate, access.certificate_file);
  if (!certificate) return certificate.error();
  peer.certificate = std::move(*certificate);
  auto key = text_or_file(std::string(access.key.reveal()), access.key_file);
  if (!key) return key.error();
  peer.key = Secret(std::move(*key));
  return peer;
}

result<Secret> read_token(const Access& access) {
  if (access.token_file.empty()) return access.token;
  auto text = read_file(access.token_file, kMaxFile);
  // Follow client-go: the file is newer, and the text serves until the file can be read.
  if (!text && !access.token.empty()) return access.token;
  if (!text) return with_context("reading the service account's token", text.error());
  auto token = trimmed(std::move(*text));
  // The token goes into a header, which a line end would terminate.
  if (std::ranges::any_of(token.reveal(), [](unsigned char c) { return c < 0x21 || c > 0x7e; }))
    return Error{errc::invalid_argument, "the service account's token in " + access.token_file +
                                             " is not a token: it has bytes that a header cannot have"};
  return token;
}

}  // namespace corbd::kube
