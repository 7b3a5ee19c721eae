#include "corbd/kms/kms.hpp"

#include "corbd/core/file.hpp"
#include "corbd/core/text.hpp"

namespace corbd::kms {
namespace {

constexpr std::size_t kMaxConfigFile = 4 << 20;  // more than a ConfigMap can hold

class FileKms final : public Kms {
 public:
  FileKms(BlockingPool& pool, std::string config_dir) : pool_(pool), file_(std::move(config_dir) + "/config.json") {}

  result<Kind> kind(const std::string& kms_id) const override {
    if (kms_id == "default") return Kind::shared;
    const auto text = read_file(file_, kMaxConfigFile);
    if (!text && text.error().code == errc::not_found)
      return Error{errc::failed_precondition, file_ + ", which must describe KMS \"" + printable(kms_id) +
                                                  "\", does not exist: mount the ConfigMap there"};
    if (!text) return text.error();
    auto kind = kind_of(*text, kms_id);
    if (!kind) return with_context("in " + file_, kind.error());
    return kind;
  }
  task<result<Secret>> unwrap(std::string volume_id, std::string wrapped, Secret passphrase, Until until) override {
    auto job = [volume_id, wrapped, passphrase] { return unwrap_key(volume_id, wrapped, passphrase); };
    co_return co_await pool_.run(std::move(job), until, "unwrapping the key of volume " + volume_id);
  }
  task<result<std::string>> wrap(std::string volume_id, Secret key, Secret passphrase, Until until) override {
    auto job = [volume_id, key, passphrase] { return wrap_key(volume_id, key, passphrase); };
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
