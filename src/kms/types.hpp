// What differs between types of KMS: one row each. Nothing else in the agent knows a type by its name.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "corbd/http/client.hpp"
#include "corbd/kms/kms.hpp"

namespace corbd::kms {

/// Bytes of what a KMS answers. A key, a token or a refusal has some hundred; a tenant may have chosen who answers.
inline constexpr std::size_t kAnswerBytes = 32 << 10;

/// Of one KMS, in the KMS config.
using Section = boost::json::object;

/// What a type reaches the world through, for one request of one volume. Every call ends with `until`, and soon by
/// itself. What a server is asked through a breaker, which refuses at once while that server does not answer.
class Reach {
 public:
  virtual ~Reach() = default;
  /// Any answer of the server's counts. A lost connection, 429 and 5xx are asked again with backoff, a few times: the
  /// last answer is returned, or the error.
  virtual task<result<http::Reply>> http(http::Peer peer, http::Message message, Until until) = 0;
  /// One request and one answer over TLS, framed as KMIP: bytes 4 to 7 are the length of what follows the first 8.
  /// `limit`: bytes of an answer; a longer one is an error. Asked once.
  virtual task<result<std::string>> exchange(http::Peer peer, std::string request, std::size_t limit, Until until) = 0;
  /// As kms::Kubernetes.
  virtual task<result<std::map<std::string, Secret>>> secret(std::string name_space, std::string name, Until until) = 0;
  virtual task<result<std::map<std::string, std::string>>> config_map(std::string name_space, std::string name,
                                                                      Until until) = 0;
  virtual task<result<Secret>> account_token(std::string name_space, std::string service_account,
                                             std::vector<std::string> audiences, Until until) = 0;
  /// A small file, such as the pod's own token.
  virtual task<result<Secret>> file(std::string path, Until until) = 0;
  /// Runs what takes a processor longer than a millisecond, on another thread.
  virtual task<result<Secret>> compute(std::function<result<Secret>()> work, Until until) = 0;
  virtual std::string own_namespace() const = 0;                  ///< empty outside Kubernetes
  virtual std::chrono::system_clock::time_point now() const = 0;  ///< for signatures
};

/// One request. `section` has passed check().
struct Ask {
  Section section;
  std::string kms_id;
  KeyOwner owner;
  Secret passphrase;                      ///< as KeyRequest::passphrase
  std::map<std::string, Secret> secrets;  ///< as KeyRequest::secrets
  Until until;
};

struct KmsType {
  std::string_view name;  ///< encryptionKMSType, or KMS_PROVIDER
  Kind kind = Kind::shared;
  bool has_tenants = false;  ///< its servers, or who asks them, differ from tenant to tenant
  /// Every key of a section that means something, besides the two of the type.
  std::span<const std::string_view> keys = {};
  /// Why a KMS with this section is not served; null: it always is. Pure. `id`: for the text.
  result<> (*check)(const Section& section, const std::string& id) = nullptr;
  /// Whether encryptionPassphrase of the node-stage secret is needed; null: it is not.
  bool (*needs_passphrase)(const Section& section) = nullptr;
  /// Of the kind `wrapped`, as Kms::unwrap and Kms::wrap.
  task<result<Secret>> (*unwrap)(Reach& reach, Ask ask, std::string wrapped) = nullptr;
  task<result<std::string>> (*wrap)(Reach& reach, Ask ask, Secret key) = nullptr;
  /// The passphrase that it wraps with, as Kms::passphrase; null: it wraps otherwise.
  task<result<Secret>> (*passphrase)(Reach& reach, Ask ask) = nullptr;
  /// Of the kind `stored`, as Kms::fetch and Kms::store. The answer of `fetch` says whether writes name a version: the
  /// planner rotates no key without (plan/volume_key.hpp).
  task<result<Stored>> (*fetch)(Reach& reach, Ask ask) = nullptr;
  task<result<>> (*store)(Reach& reach, Ask ask, Secret key, std::optional<std::uint64_t> version) = nullptr;
};

/// Nothing for a type without a row.
const KmsType* kms_type(std::string_view name);
/// "default, metadata or vault": for texts.
std::string known_types();

}  // namespace corbd::kms
