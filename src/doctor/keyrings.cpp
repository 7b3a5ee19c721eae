// Reads the keyrings of a host without an orchestrator: those that its mounts use, and the others of /etc/ceph. Only
// the type of a key is kept.
#include <algorithm>
#include <filesystem>

#include "corbd/cephcsi/mounters.hpp"
#include "corbd/cephcsi/parameters.hpp"
#include "corbd/core/file.hpp"
#include "corbd/core/sysfs.hpp"
#include "corbd/mounting/spec.hpp"
#include "corbd/rbd/ceph_conf.hpp"
#include "inputs.hpp"

namespace corbd::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxKeyring = 1 << 20;

/// Decides as the agent does. A refused volume has no client. No volume of a host has a StorageClass.
bool kernel_serves(const manager::Mount& mount, const Choosing& choosing) {
  const auto rule =
      cephcsi::choose_mounter(choosing.rules, cephcsi::mounter_case(mount.volume.external_id, mount.volume_context));
  const auto read = cephcsi::read_parameters(mount.volume_context, {choosing.unnamed, rule.mounter});
  return read && read->mounter == cephcsi::Mounter::krbd;
}

/// Returns why corbd refuses this mount on purpose. The file alone decides: the image is not read.
std::optional<std::string> refusal_of(const manager::Mount& mount, const Choosing& choosing) {
  const auto read = cephcsi::read_parameters(mount.volume_context, {choosing.unnamed, std::nullopt});
  if (!read) return std::nullopt;
  plan::Combination of;
  using enum plan::Combination::Encryption;
  if (!read->kms_id.empty())
    of.encryption = read->encryption_type == cephcsi::kFileEncryption ? files
                    : read->luks.integrity.empty()                    ? device
                                                                      : with_integrity;
  of.capability.block = mount.usage.attachment == manager::AccessType::block;
  of.capability.fstype = mount.usage.fstype;
  of.contents = plan::Combination::Contents::wanted;
  const auto* row = plan::find_not_served(plan::NotServed::Moment::stage, of);
  return row == nullptr ? std::nullopt : std::optional("the volume " + std::string(row->why));
}

std::vector<std::string> keyrings_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& name : sysfs::names_in(folder))
    if (fs::path(name).extension() == ".keyring" || name == "keyring") paths.push_back(fs::path(folder) / name);
  return paths;
}

}  // namespace

Keyrings read_keyrings(const std::string& mounts_dir, const std::string& ceph_dir, const Choosing& choosing) {
  Keyrings found;
  std::vector<Secret> used;
  for (const auto& file : mounting::read_mount_files(mounts_dir)) {
    const auto mount = file.spec ? mounting::mount_of(*file.spec) : result<manager::Mount>(file.spec.error());
    if (!mount) {
      // An error of the file itself names the file already.
      found.wrong.push_back(file.spec ? file.path + ": " + mount.error().text : mount.error().text);
      continue;
    }
    if (const auto refused = refusal_of(*mount, choosing)) found.wrong.push_back(file.path + ": " + *refused);
    used.push_back(mount->secrets.at("userKey"));
    found.keys.push_back({file.spec->dir + " (client." + file.spec->user + ")", cephcsi::key_type(used.back().reveal()),
                          kernel_serves(*mount, choosing), KeySeen::From::mount});
  }
  for (const auto& path : keyrings_in(ceph_dir)) {
    auto text = read_file(path, kMaxKeyring);
    const auto keys = rbd::client_keys(text ? std::string_view(*text) : "");
    if (text) wipe(*text);
    if (!keys) continue;
    for (const auto& [user, key] : *keys)
      if (std::ranges::find(used, key) == used.end())
        found.keys.push_back(
            {"client." + user + " in " + path, cephcsi::key_type(key.reveal()), false, KeySeen::From::keyring});
  }
  return found;
}

}  // namespace corbd::doctor
