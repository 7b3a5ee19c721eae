#include "corbd/krbd/sysfs.hpp"

#include "corbd/core/sysfs.hpp"
#include "corbd/core/text.hpp"
#include "corbd/device/sysfs.hpp"

namespace corbd::krbd {
namespace {

namespace fs = std::filesystem;
using sysfs::attribute;
using sysfs::number_of;

/// Finds the user in what rbd was told when the image was mapped:
/// "10.0.0.1:6789 name=csi-rbd-node,key=client.csi-rbd-node volumes image -". Another program may have put the key
/// itself there (secret=).
std::string user_of(std::string_view config) {
  constexpr std::string_view kName = "name=";
  const auto options = config.find(' ');
  if (options == config.npos) return "";
  config = config.substr(options + 1);
  config = config.substr(0, config.find(' '));
  for (const auto option : corbd::pieces(config, ','))
    if (option.starts_with(kName)) return std::string(option.substr(kName.size()));
  return "";
}

/// Returns nothing if the device disappears during the read.
std::optional<device::Mapped> read_device(const fs::path& folder, const fs::path& block, std::uint32_t index) {
  const auto pool = attribute(folder / "pool"), name = attribute(folder / "name"), id = attribute(folder / "image_id");
  if (!pool || !name || !id) return std::nullopt;
  device::Mapped mapped;
  mapped.seen.kind = device::Kind::krbd;
  mapped.seen.index = index;
  mapped.seen.client = attribute(folder / "client_addr").value_or("");
  mapped.seen.user = user_of(attribute(folder / "config_info").value_or(""));
  mapped.seen.size = number_of<std::uint64_t>(folder / "size");  // bytes
  mapped.seen.dev_major = number_of<std::uint32_t>(folder / "major");
  mapped.seen.dev_minor = number_of<std::uint32_t>(folder / "minor");
  mapped.seen.waiting = sysfs::waiting_of(block);
  mapped.seen.read_only = device::is_read_only(block);
  mapped.seen.holders = device::holders_of(block);
  mapped.key.fsid = attribute(folder / "cluster_fsid").value_or("");
  mapped.key.pool_id = number_of<std::int64_t>(folder / "pool_id");
  mapped.key.ns = attribute(folder / "pool_ns").value_or("");  // kernels before 4.20 have none
  mapped.key.image_id = *id;
  mapped.name = {*pool, mapped.key.ns, *name};
  mapped.head = attribute(folder / "current_snap").value_or("-") == "-";
  return mapped;
}

}  // namespace

result<std::vector<device::Mapped>> read_inventory(const std::string& root) {
  std::vector<device::Mapped> found;
  const fs::path devices = root + "/bus/rbd/devices";
  for (const auto& name : sysfs::names_in(devices)) {
    const auto index = sysfs::number<std::uint32_t>(name);
    if (!index) continue;
    if (auto mapped = read_device(devices / name, root + "/block/rbd" + name, *index))
      found.push_back(std::move(*mapped));
  }
  return found;
}

bool knows_aes256k(std::string_view release) {
  constexpr unsigned first = 7;  // source: docs/sources.md#cephx-keys
  return sysfs::number<unsigned>(release.substr(0, release.find('.'))).value_or(0) >= first;
}

result<device::Abilities> read_abilities(const std::string& root, std::string_view release) {
  // The attribute holds "0x1ff", for example.
  const auto text = attribute(root + "/bus/rbd/supported_features");
  if (!text)
    return Error{errc::failed_precondition,
                 "the kernel's rbd module is not loaded, or older than 4.11: run `modprobe rbd`"};
  const auto features =
      sysfs::number<std::uint64_t>(std::string_view(*text).substr(text->starts_with("0x") ? 2 : 0), 16);
  if (!features)
    return Error{errc::failed_precondition,
                 "the kernel's rbd module gives its features as '" + *text + "', which is not a number"};
  return device::Abilities{*features, knows_aes256k(release)};
}

}  // namespace corbd::krbd
