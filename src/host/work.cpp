// The helper's side: each operation is a call of ops.
#include "corbd/host/helpers.hpp"
#include "operations.hpp"
#include "ops.hpp"

namespace corbd::host {
namespace operation {

result<Probe> perform(const ProbeDevice& asked) { return ops::probe(asked.device); }
result<std::string> perform(const MakeFilesystem& asked) {
  return ops::mkfs(asked.device, asked.fstype, asked.options, asked.made_for);
}
result<> perform(const RepairFilesystem& asked) { return ops::fsck(asked.device, asked.fstype, asked.options); }
result<std::string> perform(const CheckFilesystem& asked) { return ops::check(asked.device, asked.fstype); }
result<Inspection> perform(const InspectFilesystem& asked) {
  return ops::inspect(asked.device, asked.fstype, asked.repair);
}
result<KernelNeeds> perform(const ReadKernelNeeds& asked) { return ops::kernel_needs(asked.device); }
result<KernelNeeds> perform(const TryKernelNeeds& asked) {
  return ops::kernel_needs_of_new(asked.fstype, asked.options);
}
result<> perform(const MountDevice& asked) { return ops::mount(asked.device, asked.fstype, asked.target, asked.flags); }
result<> perform(const Bind& asked) { return ops::bind(asked.source, asked.target, asked.device_node, asked.flags); }
result<> perform(const Unmount& asked) { return ops::unmount(asked.target, asked.sync); }
result<> perform(const LimitIo& asked) { return ops::limit_io("/sys/fs/cgroup", asked.pod_uid, asked.line); }
result<TrimPiece> perform(const TrimFrom& asked) { return ops::trim_from(asked.target, asked.from); }
result<std::uint64_t> perform(const Trim& asked) { return ops::trim(asked.target); }
result<std::string> perform(const Freeze& asked) {
  return ops::freeze(asked.target, time_point(std::chrono::nanoseconds(asked.last_ns)));
}
result<bool> perform(const Thaw& asked) { return ops::thaw(asked.target); }
result<Usage> perform(const MeasureUsage& asked) { return ops::usage(asked.target); }
result<Extent> perform(const MeasureExtent& asked) { return ops::extent(asked.device, asked.fstype, asked.target); }
result<> perform(const Grow& asked) { return ops::grow(asked.device, asked.fstype, asked.target); }
result<> perform(const CheckUnused& asked) { return ops::check_unused(asked.device); }
result<> perform(const Tune& asked) {
  const auto& name = asked.kernel_name;
  if (name.empty() || name.find('/') != std::string::npos || name.front() == '.')
    return Error{errc::invalid_argument, "\"" + name + "\" is not the name of a device"};
  return ops::tune("/sys/block/" + name, "/dev/" + name, asked.use);
}
result<OtherServer> perform(const FindDaemons& asked) {
  auto found = ops::daemons("", asked.index, asked.backend);
  if (!found) return found.error();
  auto uncached = ops::uncached_process("", *found);
  return OtherServer{std::move(*found), std::move(uncached)};
}
result<> perform(const DismissDaemons& asked) { return ops::dismiss(asked.index, asked.backend); }
result<LuksHeader> perform(const LookForLuks& asked) { return ops::luks_look(asked.device); }
result<> perform(const FormatLuks& asked) { return ops::luks_format(asked.device, asked.passphrase, 0, asked.how); }
result<> perform(const OpenLuks& asked) {
  return ops::luks_open(asked.device, asked.mapping, asked.passphrase, asked.how);
}
result<> perform(const ResizeLuks& asked) { return ops::luks_resize(asked.mapping); }
result<> perform(const CloseLuks& asked) { return ops::luks_close(asked.mapping); }
result<bool> perform(const TryLuksKey& asked) { return ops::luks_opens(asked.device, asked.slot, asked.passphrase); }
result<> perform(const AddLuksKey& asked) {
  return ops::luks_add_key(asked.device, asked.slot, asked.known, asked.added, 0);
}
result<> perform(const RemoveLuksKey& asked) { return ops::luks_remove_key(asked.device, asked.slot); }
result<EncryptedFolder> perform(const LookForFolder& asked) { return ops::fscrypt_look(asked.target); }
result<> perform(const MakeFolder& asked) { return ops::fscrypt_make(asked.target, asked.secret); }
result<> perform(const UnlockFolder& asked) { return ops::fscrypt_unlock(asked.target, asked.secret); }
result<> perform(const LockFolder& asked) { return ops::fscrypt_lock(asked.target); }

}  // namespace operation

std::span<const helper::Known> helper_operations() {
  using namespace operation;
  return helper::kKnown<ProbeDevice, MakeFilesystem, RepairFilesystem, CheckFilesystem, InspectFilesystem,
                        ReadKernelNeeds, TryKernelNeeds, MountDevice, Bind, Unmount, LimitIo, Trim, TrimFrom, Freeze,
                        Thaw, MeasureUsage, MeasureExtent, Grow, CheckUnused, Tune, FindDaemons, DismissDaemons,
                        LookForLuks, FormatLuks, OpenLuks, ResizeLuks, CloseLuks, TryLuksKey, AddLuksKey, RemoveLuksKey,
                        LookForFolder, MakeFolder, UnlockFolder, LockFolder>;
}

}  // namespace corbd::host
