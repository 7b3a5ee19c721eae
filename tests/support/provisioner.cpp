#include "support/provisioner.hpp"

#include <rbd/librbd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <vector>

#include "corbd/cephcsi/handle.hpp"

namespace corbd::test {
namespace {

using Pairs = std::map<std::string, std::string>;

void check(std::int64_t r, const std::string& doing) {
  if (r < 0) throw std::runtime_error("provisioner: " + doing + ": " + std::strerror(static_cast<int>(-r)));
}

struct Io {
  Io(rados_t cluster, const std::string& pool, const std::string& ns) {
    check(rados_ioctx_create(cluster, pool.c_str(), &io), "opening pool " + pool);
    rados_ioctx_set_namespace(io, ns.c_str());
  }
  ~Io() { rados_ioctx_destroy(io); }
  Io(const Io&) = delete;
  Io& operator=(const Io&) = delete;
  rados_ioctx_t io = nullptr;
};

using WriteOp = std::unique_ptr<void, void (*)(rados_write_op_t)>;
WriteOp write_op() { return {rados_create_write_op(), &rados_release_write_op}; }

void create_object(rados_ioctx_t io, const std::string& object) {
  const auto op = write_op();
  rados_write_op_create(op.get(), LIBRADOS_CREATE_EXCLUSIVE, nullptr);
  check(rados_write_op_operate(op.get(), io, object.c_str(), nullptr, 0), "creating " + object);
}

void set_keys(rados_ioctx_t io, const std::string& object, const Pairs& pairs) {
  std::vector<const char*> keys, values;
  std::vector<std::size_t> lengths;
  for (const auto& [key, value] : pairs) {
    keys.push_back(key.c_str());
    values.push_back(value.c_str());
    lengths.push_back(value.size());
  }
  const auto op = write_op();
  rados_write_op_omap_set(op.get(), keys.data(), values.data(), lengths.data(), pairs.size());
  check(rados_write_op_operate(op.get(), io, object.c_str(), nullptr, 0), "writing " + object);
}

void remove_key(rados_ioctx_t io, const std::string& object, const std::string& key) {
  const char* one = key.c_str();
  const auto op = write_op();
  rados_write_op_omap_rm_keys(op.get(), &one, 1);
  check(rados_write_op_operate(op.get(), io, object.c_str(), nullptr, 0), "removing a key of " + object);
}

void remove_object(rados_ioctx_t io, const std::string& object) {
  const int r = rados_remove(io, object.c_str());
  if (r != -ENOENT) check(r, "removing " + object);
}

std::string make_uuid() {
  std::string uuid;
  std::getline(std::ifstream("/proc/sys/kernel/random/uuid"), uuid);
  return uuid;
}

std::string hex16(std::int64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

std::string image_id(rados_ioctx_t io, const std::string& name) {
  rbd_image_t image = nullptr;
  check(rbd_open_read_only(io, name.c_str(), &image, nullptr), "opening " + name);
  char id[256];
  const int r = rbd_get_id(image, id, sizeof id);
  rbd_close(image);
  check(r, "asking for the id of " + name);
  return id;
}

Pairs read_pairs(rados_ioctx_t io, const std::string& object) {
  const std::unique_ptr<void, void (*)(rados_read_op_t)> op(rados_create_read_op(), &rados_release_read_op);
  rados_omap_iter_t iter = nullptr;
  unsigned char more = 0;
  int listed = 0;
  rados_read_op_omap_get_vals2(op.get(), "", "", 512, &iter, &more, &listed);
  const int r = rados_read_op_operate(op.get(), io, object.c_str(), 0);
  const std::unique_ptr<void, void (*)(rados_omap_iter_t)> owned(iter, &rados_omap_get_end);
  if (r == -ENOENT) return {};
  check(r, "reading " + object);
  Pairs pairs;
  char *key = nullptr, *value = nullptr;
  std::size_t length = 0;
  while (rados_omap_get_next(iter, &key, &value, &length) == 0 && key != nullptr)
    pairs[key] = std::string(value, length);
  return pairs;
}

constexpr const char* kDirectory = "csi.volumes.default";
std::string journal(const std::string& uuid) { return "csi.volume." + uuid; }

}  // namespace

NewHandle Provisioner::create(const NewVolume& wanted) {
  const std::string journal_pool = wanted.journal_pool.empty() ? wanted.pool : wanted.journal_pool;
  const Io images(cluster_, wanted.pool, wanted.ns), journals(cluster_, journal_pool, wanted.ns);
  const NewHandle made = handle(wanted, make_uuid());
  const bool topology = journal_pool != wanted.pool;
  // The object is created in the image's pool, the keys are written in the directory's.
  create_object(images.io, journal(made.uuid));
  set_keys(journals.io, kDirectory,
           {{"csi.volume." + wanted.name, (topology ? hex16(made.pool_id) + "/" : "") + made.uuid}});
  Pairs keys{{"csi.volname", wanted.name}, {"csi.imagename", made.image}, {"csi.volume.owner", "lab"}};
  if (!wanted.kms.empty()) keys.insert({{"csi.volume.encryptKMS", wanted.kms}, {"csi.volume.encryptionType", "block"}});
  if (topology) keys["csi.journalpool"] = hex16(rados_pool_lookup(cluster_, journal_pool.c_str()));
  set_keys(journals.io, journal(made.uuid), keys);
  int order = 22;
  check(rbd_create2(images.io, made.image.c_str(), wanted.size, 61, &order), "creating " + made.image);
  set_keys(journals.io, journal(made.uuid), {{"csi.imageid", image_id(images.io, made.image)}});
  return made;
}

std::optional<Provisioner::Known> Provisioner::find(const NewVolume& wanted) const {
  const Io in(cluster_, wanted.pool, wanted.ns);
  const auto directory = read_pairs(in.io, kDirectory);
  const auto place = directory.find("csi.volume." + wanted.name);
  if (place == directory.end()) return std::nullopt;
  Known known{handle(wanted, place->second)};
  rbd_image_t image = nullptr;
  check(rbd_open_read_only(in.io, known.handle.image.c_str(), &image, nullptr), "opening " + known.handle.image);
  const int r = rbd_get_size(image, &known.size);
  rbd_close(image);
  check(r, "asking for the size of " + known.handle.image);
  return known;
}

NewHandle Provisioner::handle(const NewVolume& wanted, std::string uuid) const {
  NewHandle made;
  made.image = wanted.prefix + uuid;
  made.pool_id = rados_pool_lookup(cluster_, wanted.pool.c_str());
  check(made.pool_id, "looking up " + wanted.pool);
  made.volume_id = cephcsi::encode(cephcsi::Handle{cluster_id_, made.pool_id, uuid});
  made.uuid = std::move(uuid);
  made.context = {{"clusterID", cluster_id_},
                  {"pool", wanted.pool},
                  {"imageName", made.image},
                  {"mounter", "rbd-nbd"},
                  {"journalPool", wanted.journal_pool.empty() ? wanted.pool : wanted.journal_pool}};
  if (!wanted.ns.empty()) made.context["radosNamespace"] = wanted.ns;
  return made;
}

void Provisioner::remove(const std::string& volume_id) {
  const auto known = cephcsi::decode_handle(volume_id);
  if (!known) return;
  char pool[256];
  if (rados_pool_reverse_lookup(cluster_, known->pool_id, pool, sizeof pool) < 0) return;
  const auto says = journal_of(cluster_, pool, "", known->uuid);
  if (!says.contains("csi.volname")) return;
  NewVolume wanted;
  wanted.name = says.at("csi.volname");
  wanted.pool = pool;
  NewHandle made;
  made.uuid = known->uuid;
  made.image = says.at("csi.imagename");
  remove(wanted, made);
}

void Provisioner::remove(const NewVolume& wanted, const NewHandle& made) {
  const std::string journal_pool = wanted.journal_pool.empty() ? wanted.pool : wanted.journal_pool;
  const Io images(cluster_, wanted.pool, wanted.ns), journals(cluster_, journal_pool, wanted.ns);
  const int r = rbd_remove(images.io, made.image.c_str());
  if (r != -ENOENT) check(r, "removing " + made.image);
  remove_object(images.io, journal(made.uuid));
  remove_object(journals.io, journal(made.uuid));
  remove_key(journals.io, kDirectory, "csi.volume." + wanted.name);
}

Pairs journal_of(rados_t cluster, const std::string& pool, const std::string& ns, const std::string& uuid) {
  const Io in(cluster, pool, ns);
  return read_pairs(in.io, journal(uuid));
}

void forget_in_journal(rados_t cluster, const std::string& pool, const std::string& ns, const std::string& uuid,
                       const std::string& key) {
  const Io in(cluster, pool, ns);
  remove_key(in.io, journal(uuid), key);
}

void remove_journal(rados_t cluster, const std::string& pool, const std::string& ns, const std::string& uuid) {
  const Io in(cluster, pool, ns);
  remove_object(in.io, journal(uuid));
}

}  // namespace corbd::test
