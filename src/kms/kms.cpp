#include "corbd/kms/kms.hpp"

#include "config.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"

namespace corbd::kms {
namespace {

constexpr std::size_t kMaxConfigFile = 4 << 20;  // more than a ConfigMap can hold

result<Found> find_in_file(const std::string& file, const std::string& kms_id) {
  if (kms_id == kDefaultKms) return Found{kms_type(kms_id), {}};
  const auto text = read_file(file, kMaxConfigFile);
  if (!text && text.error().code == errc::not_found)
    return Error{errc::failed_precondition, file + ", which must describe KMS \"" + printable(kms_id) +
                                                "\", does not exist: mount the ConfigMap there"};
  if (!text) return text.error();
  auto found = find_kms(*text, kms_id);
  if (!found) return with_context("in " + file, found.error());
  return found;
}

Error no_own_key(const std::string& kms_id) {
  return {errc::failed_precondition, "KMS \"" + printable(kms_id) + "\" has no key for each volume"};
}

class FileKms final : public Kms {
 public:
  FileKms(BlockingPool& pool, std::string config_dir) : pool_(pool), file_(std::move(config_dir) + "/config.json") {}

  result<Kind> kind(const std::string& kms_id) const override {
    const auto found = find_in_file(file_, kms_id);
    if (!found) return found.error();
    return found->type->kind;
  }
  task<result<Secret>> unwrap(std::string kms_id, std::string volume_id, std::string wrapped, Secret passphrase,
                              Until until) override {
    auto job = [file = file_, kms_id, volume_id, wrapped, passphrase]() -> result<Secret> {
      const auto found = find_in_file(file, kms_id);
      if (!found) return found.error();
      if (found->type->unwrap == nullptr) return no_own_key(kms_id);
      return found->type->unwrap(found->section, volume_id, wrapped, passphrase);
    };
    co_return co_await pool_.run(std::move(job), until, "unwrapping the key of volume " + volume_id);
  }
  task<result<std::string>> wrap(std::string kms_id, std::string volume_id, Secret key, Secret passphrase,
                                 Until until) override {
    auto job = [file = file_, kms_id, volume_id, key, passphrase]() -> result<std::string> {
      const auto found = find_in_file(file, kms_id);
      if (!found) return found.error();
      if (found->type->wrap == nullptr) return no_own_key(kms_id);
      return found->type->wrap(found->section, volume_id, key, passphrase);
    };
    co_return co_await pool_.run(std::move(job), until, "wrapping the key of volume " + volume_id);
  }

 private:
  BlockingPool& pool_;
  std::string file_;
};

}  // namespace

std::unique_ptr<Kms> make_kms(BlockingPool& pool, std::string config_dir) {
  return std::make_unique<FileKms>(pool, std::move(config_dir));
}

}  // namespace corbd::kms
