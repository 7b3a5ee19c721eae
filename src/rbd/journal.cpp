#include "journal.hpp"

#include <array>
#include <memory>

#include "failure.hpp"

namespace corbd::rbd {
namespace {

constexpr const char *kImageName = "csi.imagename", *kImageId = "csi.imageid", *kKms = "csi.volume.encryptKMS",
                     *kEncryptionType = "csi.volume.encryptionType", *kTenant = "csi.volume.owner";

std::string object_of(const std::string& uuid) { return "csi.volume." + uuid; }

void note_pair(Journal& journal, std::string_view key, std::string value) {
  if (key == kImageName)
    journal.image_name = std::move(value);
  else if (key == kImageId)
    journal.image_id = std::move(value);
  else if (key == kKms)
    journal.kms_id = std::move(value);
  else if (key == kEncryptionType)
    journal.encryption_type = std::move(value);
  else if (key == kTenant)
    journal.tenant = std::move(value);
}

/// A pool may be newer than this client's map.
result<OpenPool> open_known_pool(rados_t cluster, std::int64_t id, const std::string& ns) {
  auto pool = open_pool(cluster, id, ns);
  if (pool || pool.error().code != errc::not_found) return pool;
  if (const int r = rados_wait_for_latest_osdmap(cluster); r < 0) return failure("waiting for the OSD map", r);
  return open_pool(cluster, id, ns);
}

struct Other {
  std::int64_t pool_id;
  Journal journal;
};

/// Reads the journal of a volume whose image is in another pool than its directory. A provisioner with topology writes
/// it there. Nothing if it cannot be read, because it is only a hint.
std::optional<Other> read_elsewhere(Connection& connection, const image::Reserved& reserved, const std::string& ns) {
  if (reserved.journal_pool.empty()) return std::nullopt;
  const auto id = pool_id(connection.cluster, reserved.journal_pool);
  if (!id || *id == reserved.pool_id) return std::nullopt;
  const auto pool = open_pool(connection.cluster, *id, ns);
  if (!pool) return std::nullopt;
  auto journal = read_journal(connection, *pool, reserved.uuid);
  if (!journal || journal->image_name.empty()) return std::nullopt;
  return Other{*id, std::move(*journal)};
}

std::string name_of(const Journal& journal, const image::Reserved& reserved) {
  if (!journal.image_name.empty()) return journal.image_name;
  return reserved.image.empty() ? "csi-vol-" + reserved.uuid : reserved.image;
}

}  // namespace

result<Journal> read_journal(Connection& connection, const OpenPool& pool, const std::string& uuid) {
  constexpr std::array keys{kImageName, kImageId, kKms, kEncryptionType, kTenant};
  std::array<std::size_t, keys.size()> lengths{};
  for (std::size_t i = 0; i < keys.size(); ++i) lengths[i] = std::string_view(keys[i]).size();
  const std::unique_ptr<void, void (*)(rados_read_op_t)> operation(rados_create_read_op(), &rados_release_read_op);
  rados_omap_iter_t pairs = nullptr;
  int found = 0;
  rados_read_op_omap_get_vals_by_keys2(operation.get(), keys.data(), keys.size(), lengths.data(), &pairs, &found);
  const int r = connection.observe_result(
      rados_read_op_operate(operation.get(), pool.io.get(), object_of(uuid).c_str(), LIBRADOS_OPERATION_NOFLAG));
  const std::unique_ptr<void, void (*)(rados_omap_iter_t)> owned(pairs, &rados_omap_get_end);
  if (r == -ENOENT) return Journal{};
  const std::string doing = "reading the journal " + object_of(uuid) + " in " + pool.text;
  if (r == -EPERM || r == -EACCES)
    return failure(doing, r, "the user needs the OSD caps 'profile rbd' for this pool and namespace");
  if (r < 0 || found < 0) return failure(doing, r < 0 ? r : found);
  Journal journal;
  journal.there = true;
  for (;;) {
    char *key = nullptr, *value = nullptr;
    std::size_t key_length = 0, value_length = 0;
    if (const int next = rados_omap_get_next2(pairs, &key, &value, &key_length, &value_length); next < 0)
      return failure(doing, next);
    if (key == nullptr) return journal;
    note_pair(journal, {key, key_length}, std::string(value, value_length));
  }
}

result<> write_image_id(Connection& connection, std::int64_t pool_id, const std::string& ns, const std::string& uuid,
                        const std::string& image_id) {
  const auto pool = open_pool(connection.cluster, pool_id, ns);
  if (!pool) return pool.error();
  const std::unique_ptr<void, void (*)(rados_write_op_t)> operation(rados_create_write_op(), &rados_release_write_op);
  const char *key = kImageId, *value = image_id.data();
  const std::size_t key_length = std::string_view(kImageId).size(), value_length = image_id.size();
  rados_write_op_assert_exists(operation.get());
  rados_write_op_omap_set2(operation.get(), &key, &value, &key_length, &value_length, 1);
  const int r = connection.observe_result(rados_write_op_operate2(
      operation.get(), pool->io.get(), object_of(uuid).c_str(), nullptr, LIBRADOS_OPERATION_NOFLAG));
  if (r < 0) return failure("writing the image's id into the journal " + object_of(uuid) + " in " + pool->text, r);
  return {};
}

result<Located> find_by_journal(Connection& connection, const image::Reserved& reserved, const std::string& ns) {
  auto pool = open_known_pool(connection.cluster, reserved.pool_id, ns);
  if (!pool) return pool.error();
  auto journal = read_journal(connection, *pool, reserved.uuid);
  if (!journal) return journal.error();
  std::optional<Other> other;
  if (journal->image_name.empty()) other = read_elsewhere(connection, reserved, ns);
  const Journal& says = other ? other->journal : *journal;
  Located located;
  const Journal& encrypts = says.kms_id.empty() ? *journal : says;
  located.kms_id = encrypts.kms_id;
  located.encryption_type = encrypts.encryption_type;
  located.tenant = encrypts.tenant;
  located.target.pool_id = reserved.pool_id;
  located.target.name = {pool->name, ns, name_of(says, reserved)};
  if (says.there && says.image_id.empty()) located.lacks_id = other ? other->pool_id : reserved.pool_id;
  located.target.pool = std::move(*pool);
  return located;
}

}  // namespace corbd::rbd
