// The agent's side of fscrypt: each call becomes one request of a helper. Secrets are in its body, which nobody logs.
#include <boost/json/value.hpp>

#include "corbd/host/helpers.hpp"
#include "requests.hpp"

namespace corbd::host {
namespace {

namespace json = boost::json;

/// argon2 beside others on a slow machine, and a sync over a slow cluster.
constexpr std::chrono::seconds kFscryptPatience{120};

HelperRequest fscrypt_request(std::string what, json::object body, HelperOwner owner) {
  return {std::move(what), std::move(body), std::move(owner), kFscryptPatience};
}

class HelperFscrypt final : public Fscrypt {
 public:
  explicit HelperFscrypt(HelperPool& helpers) : helpers_(helpers) {}

  task<result<EncryptedFolder>> look(std::string target, HelperOwner owner, Until until) override {
    json::object body{{"op", "fscrypt_look"}, {"target", target}};
    const auto reply = co_await helpers_.call(
        fscrypt_request("look for an encrypted folder at " + target, std::move(body), std::move(owner)), until);
    if (!reply) co_return reply.error();
    co_return folder_from_json(*reply);
  }
  task<result<>> make(std::string target, FscryptSecret secret, HelperOwner owner, Until until) override {
    return perform("make an encrypted folder at " + target, with_secret("fscrypt_make", target, secret),
                   std::move(owner), until);
  }
  task<result<>> unlock(std::string target, FscryptSecret secret, HelperOwner owner, Until until) override {
    return perform("unlock the folder at " + target, with_secret("fscrypt_unlock", target, secret), std::move(owner),
                   until);
  }
  task<result<>> lock(std::string target, HelperOwner owner, Until until) override {
    json::object body{{"op", "fscrypt_lock"}, {"target", target}};
    return perform("lock the folder at " + target, std::move(body), std::move(owner), until);
  }

 private:
  static json::object with_secret(std::string_view op, const std::string& target, const FscryptSecret& secret) {
    return {{"op", op},
            {"target", target},
            {"secret", in_base64(secret.secret).reveal()},
            {"passphrase", secret.passphrase}};
  }
  task<result<>> perform(std::string what, json::object body, HelperOwner owner, Until until) {
    const auto reply =
        co_await helpers_.call(fscrypt_request(std::move(what), std::move(body), std::move(owner)), until);
    if (!reply) co_return reply.error();
    co_return result<>();
  }
  HelperPool& helpers_;
};

}  // namespace

std::unique_ptr<Fscrypt> make_fscrypt(HelperPool& helpers) { return std::make_unique<HelperFscrypt>(helpers); }

}  // namespace corbd::host
