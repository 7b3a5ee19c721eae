#include "corbd/cephcsi/handle.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

namespace corbd::cephcsi {
namespace {

constexpr std::size_t kMaxId = 128;  // limit of the IDs that the provisioner makes
constexpr std::size_t kUuid = 36, kMd5 = 32;
constexpr unsigned kVersion = 1;
constexpr std::string_view kMigrated = "mig_mons-", kImage = "_image-", kInTreeImage = "kubernetes-dynamic-pvc-";

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool all_hex(std::string_view text) { return std::all_of(text.begin(), text.end(), is_hex); }

bool is_id(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  });
}

bool is_uuid(std::string_view text) {
  constexpr std::string_view form = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  return std::equal(text.begin(), text.end(), form.begin(), form.end(),
                    [](char c, char f) { return f == '-' ? c == '-' : is_hex(c); });
}

std::uint64_t number(std::string_view hex) {
  std::uint64_t value = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  return value;
}

std::string hex(std::uint64_t value, std::size_t digits) {
  std::string text(digits, '0');
  for (; digits > 0; value >>= 4) text[--digits] = "0123456789abcdef"[value & 15];
  return text;
}

/// Takes the id apart from its front. After the first wrong part it yields nothing more and keeps the error.
class Parts {
 public:
  Parts(std::string_view id, std::string_view kind) : id_(id), kind_(kind) {}

  std::string_view take(std::size_t length, std::string_view what, bool (*fits)(std::string_view),
                        std::string_view form) {
    if (failed()) return {};
    if (id_.size() - at_ < length) {
      wrong(at_, std::string(what) + " is cut off: " + std::to_string(length) + " bytes are expected");
      return {};
    }
    const auto part = id_.substr(at_, length);
    if (!fits(part)) wrong(at_, std::string(what) + " is not " + std::string(form));
    at_ += length;
    return failed() ? std::string_view() : part;
  }
  void skip(std::string_view text) {
    if (failed()) return;
    if (!id_.substr(at_).starts_with(text)) return wrong(at_, "'" + std::string(text) + "' is expected");
    at_ += text.size();
  }
  void end() {
    if (!failed() && at_ != id_.size()) wrong(at_, "there are more bytes than the ID says");
  }
  void wrong(std::size_t at, const std::string& why) {
    if (why_.empty()) why_ = "the volume ID is " + std::string(kind_) + ": at byte " + std::to_string(at) + ", " + why;
  }
  std::size_t at() const { return at_; }
  std::size_t left() const { return id_.size() - at_; }
  bool failed() const { return !why_.empty(); }
  Error error() const { return {errc::invalid_argument, why_}; }

 private:
  std::string_view id_, kind_;
  std::size_t at_ = 0;
  std::string why_;
};

}  // namespace

result<Handle> decode_handle(std::string_view id) {
  Parts parts(id, "not a handle of ceph-csi (a static volume needs staticVolume: \"true\" in its attributes)");
  if (id.size() > kMaxId) parts.wrong(kMaxId, "it has more than " + std::to_string(kMaxId) + " bytes");
  const auto version = parts.take(4, "the version", all_hex, "hexadecimal");
  if (!parts.failed() && number(version) != kVersion) parts.wrong(0, "the version is not 0001");
  parts.skip("-");
  const auto length = parts.take(4, "the cluster ID's length", all_hex, "hexadecimal");
  if (!parts.failed() && number(length) == 0) parts.wrong(parts.at() - 4, "the cluster ID's length is zero");
  parts.skip("-");
  Handle handle;
  handle.cluster_id = parts.take(number(length), "the cluster ID", is_id, "made of letters, digits, '-' and '_'");
  parts.skip("-");
  const auto pool = parts.take(16, "the pool ID", all_hex, "hexadecimal");
  const auto pool_id = number(pool);
  if (pool_id > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    parts.wrong(parts.at() - 16, "the pool ID is negative");
  handle.pool_id = static_cast<std::int64_t>(pool_id);
  parts.skip("-");
  // Accept 36 characters of any kind, as ceph-csi does, because tools write handles by hand. They only end the name of
  // a journal entry.
  handle.uuid = parts.take(kUuid, "the uuid", is_id, "made of letters, digits, '-' and '_'");
  parts.end();
  if (parts.failed()) return parts.error();
  return handle;
}

std::string encode(const Handle& handle) {
  return hex(kVersion, 4) + "-" + hex(handle.cluster_id.size(), 4) + "-" + handle.cluster_id + "-" +
         hex(static_cast<std::uint64_t>(handle.pool_id), 16) + "-" + handle.uuid;
}

result<MigratedHandle> decode_migrated_handle(std::string_view id) {
  Parts parts(id, "not a handle of a migrated volume");
  parts.skip(kMigrated);
  MigratedHandle handle;
  handle.cluster_id = parts.take(kMd5, "the monitors' md5", all_hex, "hexadecimal");
  parts.skip(kImage);
  handle.image = std::string(kInTreeImage) + std::string(parts.take(kUuid, "the image's uuid", is_uuid, "one"));
  parts.skip("_");
  const auto at = parts.at();
  const auto pool = parts.take(parts.left(), "the pool's name", all_hex, "hexadecimal");
  if (pool.empty() || pool.size() % 2 != 0)
    parts.wrong(at, "the pool's name is not made of pairs of hexadecimal digits");
  for (std::size_t i = 0; i + 1 < pool.size(); i += 2) handle.pool += static_cast<char>(number(pool.substr(i, 2)));
  if (std::any_of(handle.pool.begin(), handle.pool.end(),
                  [](unsigned char c) { return c <= 0x20 || c >= 0x7f || c == '/' || c == '@'; }))
    parts.wrong(at, "the pool's name has bytes that no pool's name can have");
  if (parts.failed()) return parts.error();
  return handle;
}

std::string encode(const MigratedHandle& handle) {
  std::string text =
      std::string(kMigrated) + handle.cluster_id + std::string(kImage) + handle.image.substr(kInTreeImage.size()) + "_";
  for (const unsigned char c : handle.pool) text += hex(c, 2);
  return text;
}

}  // namespace corbd::cephcsi
