#include "corbd/kms/kms.hpp"

#include "config.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"
#include "transport.hpp"

namespace corbd::kms {
namespace {

constexpr std::size_t kMaxConfigFile = 4 << 20;  // more than a ConfigMap can hold

/// Replaces not_found, which would mean the volume to a caller of CSI.
template <class T>
result<T> told(result<T> answer) {
  if (answer || answer.error().code != errc::not_found) return answer;
  return Error{errc::failed_precondition, answer.error().text};
}

Error no_own_key(const KeyRequest& request) {
  return {errc::failed_precondition,
          "KMS \"" + printable(request.kms_id) +
              "\" is of a type that keeps keys in another way: its type in the KMS config was changed, so restore it"};
}

Asker asker_of(const Found& found, const KeyRequest& request) {
  return {request.kms_id, found.type->has_tenants ? request.owner.tenant : ""};
}

KeyCall ask_of(Found found, KeyRequest request, Until until) {
  return {std::move(found.section),      std::move(request.kms_id),  std::move(request.owner),
          std::move(request.passphrase), std::move(request.secrets), until};
}

class ConfiguredKms final : public Kms {
 public:
  ConfiguredKms(executor control, Clock& clock, BlockingPool& pool, Kubernetes* kubernetes, Config config)
      : config_(std::move(config)), context_{std::move(control), clock, pool, kubernetes, config_.own_namespace} {}

  task<result<Terms>> terms(std::string kms_id, Until until) override {
    const auto found = co_await find(std::move(kms_id), until);
    if (!found) co_return found.error();
    co_return found->terms();
  }
  task<result<Secret>> unwrap(KeyRequest request, std::string wrapped, Until until) override {
    auto found = co_await find(request.kms_id, until);
    if (!found) co_return found.error();
    const auto unwrap = found->type->unwrap;
    if (unwrap == nullptr) co_return no_own_key(request);
    const auto transport = make_transport(context_, asker_of(*found, request));
    co_return told(
        co_await unwrap(*transport, ask_of(std::move(*found), std::move(request), until), std::move(wrapped)));
  }
  task<result<std::string>> wrap(KeyRequest request, Secret key, Until until) override {
    auto found = co_await find(request.kms_id, until);
    if (!found) co_return found.error();
    const auto wrap = found->type->wrap;
    if (wrap == nullptr) co_return no_own_key(request);
    const auto transport = make_transport(context_, asker_of(*found, request));
    co_return told(co_await wrap(*transport, ask_of(std::move(*found), std::move(request), until), std::move(key)));
  }
  task<result<Secret>> passphrase(KeyRequest request, Until until) override {
    auto found = co_await find(request.kms_id, until);
    if (!found) co_return found.error();
    const auto passphrase = found->type->passphrase;
    if (passphrase == nullptr) co_return no_own_key(request);
    const auto transport = make_transport(context_, asker_of(*found, request));
    co_return told(co_await passphrase(*transport, ask_of(std::move(*found), std::move(request), until)));
  }
  task<result<Stored>> fetch(KeyRequest request, Until until) override {
    auto found = co_await find(request.kms_id, until);
    if (!found) co_return found.error();
    const auto fetch = found->type->fetch;
    if (fetch == nullptr) co_return no_own_key(request);
    const auto transport = make_transport(context_, asker_of(*found, request));
    co_return told(co_await fetch(*transport, ask_of(std::move(*found), std::move(request), until)));
  }
  task<result<>> store(KeyRequest request, Secret key, std::optional<std::uint64_t> version, Until until) override {
    auto found = co_await find(request.kms_id, until);
    if (!found) co_return found.error();
    const auto store = found->type->store;
    if (store == nullptr) co_return no_own_key(request);
    const auto transport = make_transport(context_, asker_of(*found, request));
    co_return told(
        co_await store(*transport, ask_of(std::move(*found), std::move(request), until), std::move(key), version));
  }

 private:
  /// Reads the file, or the ConfigMap of the pod's namespace if no file is mounted, as ceph-csi does.
  task<result<Found>> find(std::string kms_id, Until until) {
    if (kms_id == kDefaultKms) co_return Found{kms_type(kms_id)};
    const std::string file = config_.folder + "/config.json";
    auto read = [file] { return read_file(file, kMaxConfigFile); };
    const auto text = co_await context_.files.run(std::move(read), until, "reading " + file);
    if (!text && text.error().code == errc::not_found) co_return co_await find_in_config_map(std::move(kms_id), until);
    if (!text) co_return text.error();
    auto found = find_kms(*text, kms_id);
    if (!found) co_return with_context("in " + file, found.error());
    co_return found;
  }

  task<result<Found>> find_in_config_map(std::string kms_id, Until until) {
    const std::string missing =
        config_.folder + "/config.json, which must describe KMS \"" + printable(kms_id) + "\", does not exist";
    if (config_.own_namespace.empty())
      co_return Error{errc::failed_precondition, missing + ": mount the ConfigMap there"};
    const std::string place = "ConfigMap " + config_.own_namespace + "/" + config_.config_map;
    const auto data = co_await context_.api().config_map(config_.own_namespace, config_.config_map, until);
    // A missing right or an absent API server matters less than the missing file.
    if (!data)
      co_return Error{final_for_caller(data.error().code) ? errc::failed_precondition : data.error().code,
                      missing + ": mount the ConfigMap there; instead of it, " + place +
                          " could not be read: " + data.error().text};
    auto found = find_kms(*data, kms_id);
    if (!found) co_return with_context("in " + place, found.error());
    co_return found;
  }

  const Config config_;
  KmsContext context_;
};

}  // namespace

std::vector<Complaint> check_folder(const std::string& folder) {
  const std::string file = folder + "/config.json";
  const auto text = read_file(file, kMaxConfigFile);
  if (!text && text.error().code == errc::not_found) return {};
  if (!text) return {{"", false, text.error().text}};
  return check_config(*text);
}

std::unique_ptr<Kms> make_kms(executor control, Clock& clock, BlockingPool& pool, Kubernetes* kubernetes,
                              Config config) {
  return std::make_unique<ConfiguredKms>(std::move(control), clock, pool, kubernetes, std::move(config));
}

}  // namespace corbd::kms
