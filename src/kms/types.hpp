// The differences between types of KMS: one row each. No other code of the agent names a type.
#pragma once

#include <boost/json/object.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "corbd/http/client.hpp"
#include "corbd/kms/kms.hpp"

namespace corbd::kms {

/// Limit of a KMS's answer in bytes. A key, a token or a refusal has some hundred, but a tenant may have chosen the
/// server.
inline constexpr std::size_t kAnswerBytes = 32 << 10;

/// The section of one KMS in the KMS config.
using Section = boost::json::object;

/// A server's answer that nobody has parsed. Only Transport::read() can. The destructor wipes it.
class Unread {
 public:
  Unread() = default;
  explicit Unread(http::Reply reply) : reply_(std::move(reply)) {}
  Unread(Unread&&) noexcept = default;
  Unread& operator=(Unread&&) = delete;
  ~Unread() { wipe(reply_.body); }

 private:
  friend class Transport;
  http::Reply reply_;
};

/// A type's access to the world, for one request of one volume. Every call ends with `until`, and soon by itself.
/// Servers are asked through a breaker, which refuses at once while that server does not answer.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Returns any answer of the server. After a lost connection, 429 and 5xx it asks again with backoff, a few times,
  /// and returns the last answer, or the error.
  virtual task<result<Unread>> http(http::Peer peer, http::Message message, Until until) = 0;
  /// Runs `reader` on an answer, on another thread, because the server determines how long that takes. The caller may
  /// have left by then, so the reader is a plain function and gets copies of its other inputs.
  template <class R, class... Needs>
  task<R> read(Unread answer, Until until, R (*reader)(const http::Reply&, Needs...),
               std::type_identity_t<std::remove_cvref_t<Needs>>... needs) {
    static_assert(!((std::is_same_v<std::remove_cvref_t<Needs>, std::string_view> || std::is_pointer_v<Needs>) || ...),
                  "what it points to may be gone by the time that the answer is read");
    auto work = [answer = std::move(answer), reader, ... needs = std::move(needs)] {
      return reader(answer.reply_, needs...);
    };
    return compute("reading an answer", std::move(work), until);
  }
  /// Exchanges one request and one answer over TLS, framed as KMIP: bytes 4 to 7 are the length of the rest after the
  /// first 8. `limit`: bytes of an answer; a longer one is an error. Asked once.
  virtual task<result<std::string>> exchange(http::Peer peer, std::string request, std::size_t limit, Until until) = 0;
  /// These are kms::Kubernetes'.
  virtual task<result<std::map<std::string, Secret>>> secret(std::string name_space, std::string name, Until until) = 0;
  virtual task<result<std::map<std::string, std::string>>> config_map(std::string name_space, std::string name,
                                                                      Until until) = 0;
  virtual task<result<Secret>> account_token(std::string name_space, std::string service_account,
                                             std::vector<std::string> audiences, Until until) = 0;
  /// Reads a small file, such as the pod's own token.
  virtual task<result<Secret>> file(std::string path, Until until) = 0;
  /// Runs work that may take a processor longer than a millisecond, on another thread. It may outlive its caller, so it
  /// has copies of all that it uses. `what`: for an error.
  template <class Work, class R = std::invoke_result_t<Work&>>
  task<R> compute(std::string what, Work work, Until until) {
    struct Job {
      Work work;
      std::optional<R> made;
    };
    const auto job = std::make_shared<Job>(Job{std::move(work), std::nullopt});
    const auto ran = co_await run_elsewhere([job] { job->made.emplace(job->work()); }, std::move(what), until);
    if (!ran) co_return ran.error();
    co_return std::move(*job->made);
  }
  virtual std::string own_namespace() const = 0;                  ///< empty outside Kubernetes
  virtual std::chrono::system_clock::time_point now() const = 0;  ///< for signatures

 private:
  /// Runs the job on another thread. If the wait ends early, the job runs all the same.
  virtual task<result<>> run_elsewhere(std::function<void()> job, std::string what, Until until) = 0;
};

/// A request. `section` has passed check().
struct KeyCall {
  Section section;
  std::string kms_id;
  KeyOwner owner;
  Secret passphrase;                      ///< see KeyRequest::passphrase
  std::map<std::string, Secret> secrets;  ///< see KeyRequest::secrets
  Until until;
};

struct KmsType {
  std::string_view name;  ///< encryptionKMSType, or KMS_PROVIDER
  Kind kind = Kind::shared;
  bool has_tenants = false;  ///< its servers, or its credentials, differ from tenant to tenant
  /// Every key of a section that has a meaning, besides the two of the type.
  std::span<const std::string_view> keys = {};
  /// Returns why a KMS with this section is not served; null: it always is. Pure. `id`: for error texts.
  result<> (*check)(const Section& section, const std::string& id) = nullptr;
  /// Whether encryptionPassphrase of the node-stage secret is needed; null: it is not.
  bool (*needs_passphrase)(const Section& section) = nullptr;
  /// For the kind `wrapped`, as Kms::unwrap and Kms::wrap.
  task<result<Secret>> (*unwrap)(Transport& transport, KeyCall ask, std::string wrapped) = nullptr;
  task<result<std::string>> (*wrap)(Transport& transport, KeyCall ask, Secret key) = nullptr;
  /// Returns the passphrase that it wraps with, as Kms::passphrase; null: it wraps otherwise.
  task<result<Secret>> (*passphrase)(Transport& transport, KeyCall ask) = nullptr;
  /// For the kind `stored`, as Kms::fetch and Kms::store. The answer of `fetch` says whether writes name a version: the
  /// planner rotates no key without (plan/volume_key.hpp).
  task<result<Stored>> (*fetch)(Transport& transport, KeyCall ask) = nullptr;
  task<result<>> (*store)(Transport& transport, KeyCall ask, Secret key,
                          std::optional<std::uint64_t> version) = nullptr;
};

/// Returns null for a type without a row.
const KmsType* kms_type(std::string_view name);
/// Returns "default, metadata or vault", for error texts.
std::string known_types();

}  // namespace corbd::kms
