#include "mirror.hpp"

#include <cerrno>
#include <memory>

#include "failure.hpp"

namespace corbd::rbd {
namespace {

constexpr const char* kMirroring = "rbd_mirroring";  // an object of each pool and namespace
constexpr std::uint64_t kMaxReports = 64;

struct Info {
  bool mirrored = false, primary = false;
  std::string global_id;
};

result<Info> read_info(const ImageHandle& opened) {
  rbd_mirror_image_info_t raw{};
  const int r = opened.connection.observe_result(rbd_mirror_image_get_info(opened.image, &raw, sizeof raw));
  if (r == -ENOENT || r == -EOPNOTSUPP) return Info{};
  if (r < 0) return failure("asking whether image " + opened.text() + " is mirrored", r);
  Info info{raw.state == RBD_MIRROR_IMAGE_ENABLED, raw.primary, raw.global_id == nullptr ? "" : raw.global_id};
  rbd_mirror_image_get_info_cleanup(&raw);
  return info;
}

using MapEntries = std::unique_ptr<void, void (*)(rados_omap_iter_t)>;

result<> note_reporters(rados_omap_iter_t pairs, std::set<std::string>& into) {
  for (;;) {
    char *key = nullptr, *value = nullptr;
    std::size_t length = 0, value_length = 0;
    if (const int r = rados_omap_get_next2(pairs, &key, &value, &length, &value_length); r < 0)
      return failure("reading rbd_mirroring", r);
    if (key == nullptr) return {};
    if (const auto client = reporter({value, value_length})) into.insert("client." + std::to_string(*client));
  }
}

}  // namespace

result<bool> is_secondary(const ImageHandle& opened) {
  const auto info = read_info(opened);
  if (!info) return info.error();
  return info->mirrored && !info->primary;
}

std::optional<std::int64_t> reporter(std::string_view report) {
  // ENCODE_START is version, compatible version, u32 length. Then comes entity_inst_t, which begins with its type and
  // its number.
  constexpr std::size_t type_at = 6, number_at = 7;
  constexpr unsigned char client_type = 8;  // CEPH_ENTITY_TYPE_CLIENT
  if (report.size() < number_at + 8 || static_cast<unsigned char>(report[type_at]) != client_type) return std::nullopt;
  std::uint64_t number = 0;
  for (std::size_t i = 8; i-- > 0;) number = number << 8 | static_cast<unsigned char>(report[number_at + i]);
  return static_cast<std::int64_t>(number);
}

result<std::set<std::string>> mirror_daemons(const ImageHandle& opened) {
  const auto info = read_info(opened);
  if (!info) return info.error();
  std::set<std::string> daemons;
  if (!info->mirrored) return daemons;
  const std::unique_ptr<void, void (*)(rados_read_op_t)> operation(rados_create_read_op(), &rados_release_read_op);
  rados_omap_iter_t raw_here = nullptr, raw_peers = nullptr;
  unsigned char more = 0;
  int here_read = 0, peers_read = 0;
  const std::string here = "status_global_" + info->global_id, peers = "remote_status_global_" + info->global_id + "_";
  rados_read_op_omap_get_vals2(operation.get(), "", here.c_str(), kMaxReports, &raw_here, &more, &here_read);
  rados_read_op_omap_get_vals2(operation.get(), "", peers.c_str(), kMaxReports, &raw_peers, &more, &peers_read);
  const int r = opened.connection.observe_result(
      rados_read_op_operate(operation.get(), opened.pool.io.get(), kMirroring, LIBRADOS_OPERATION_NOFLAG));
  const MapEntries from_here(raw_here, &rados_omap_get_end), from_peers(raw_peers, &rados_omap_get_end);
  if (r == -ENOENT) return daemons;
  for (const int failed : {r, here_read, peers_read})
    if (failed < 0) return failure("asking who mirrors image " + opened.text(), failed);
  for (const auto* pairs : {&from_here, &from_peers})
    if (auto noted = note_reporters(pairs->get(), daemons); !noted) return noted.error();
  return daemons;
}

}  // namespace corbd::rbd
