// The agent's side: each call of a port is one operation of a helper. Passphrases are in its body, which nobody logs.
#include "corbd/host/helpers.hpp"
#include "mount_reader.hpp"
#include "operations.hpp"

namespace corbd::host {
namespace {

using namespace operation;
using helper::call;

class HelperMounts final : public Mounts {
 public:
  explicit HelperMounts(HelperPool& helpers) : helpers_(helpers) {}

  result<MountTable> table() const override { return table_.read(); }

  task<result<>> mount(std::string device, std::string fstype, std::string target, std::string flags, HelperOwner owner,
                       Until until) override {
    return call(helpers_, MountDevice{device, fstype, target, flags}, std::move(owner), until);
  }
  task<result<>> bind(std::string source, std::string target, bool device_node, std::string flags, HelperOwner owner,
                      Until until) override {
    return call(helpers_, Bind{source, target, device_node, flags}, std::move(owner), until);
  }
  task<result<>> limit_io(std::string pod_uid, std::string line, HelperOwner owner, Until until) override {
    return call(helpers_, LimitIo{pod_uid, line}, std::move(owner), until);
  }
  task<result<std::uint64_t>> trim(std::string target, HelperOwner owner, Until until) override {
    return call(helpers_, Trim{target}, std::move(owner), until);
  }
  task<result<std::string>> freeze(std::string target, HelperOwner owner, Until until) override {
    const auto last = std::chrono::nanoseconds(until.deadline.time_since_epoch()).count();
    return call(helpers_, Freeze{target, static_cast<std::uint64_t>(last)}, std::move(owner), until);
  }
  task<result<bool>> thaw(std::string target, HelperOwner owner, Until until) override {
    return call(helpers_, Thaw{target}, std::move(owner), until);
  }
  task<result<TrimPiece>> trim_from(std::string target, std::uint64_t from, HelperOwner owner, Until until) override {
    return call(helpers_, TrimFrom{target, from}, std::move(owner), until);
  }
  task<result<Usage>> usage(std::string target, Until until) override {
    const MeasureUsage wanted{target};
    for (const auto& stuck : helpers_.stuck())
      if (stuck.what == wanted.what())
        co_return Error{errc::unavailable,
                        stuck.what + ": process " + std::to_string(stuck.pid) + " still hangs in it"};
    co_return co_await call(helpers_, wanted, HelperOwner("", "looks at filesystems"), until);
  }
  task<result<>> unmount(std::string target, bool sync, HelperOwner owner, Until until) override {
    return call(helpers_, Unmount{target, sync}, std::move(owner), until);
  }

 private:
  HelperPool& helpers_;
  mutable MountReader table_;
};

class HelperFilesystems final : public Filesystems {
 public:
  explicit HelperFilesystems(HelperPool& helpers) : helpers_(helpers) {}

  task<result<Probe>> probe(std::string device, HelperOwner owner, Until until) override {
    return call(helpers_, ProbeDevice{device}, std::move(owner), until);
  }
  task<result<std::string>> mkfs(std::string device, std::string fstype, std::string options, MkfsFor made_for,
                                 HelperOwner owner, Until until) override {
    return call(helpers_, MakeFilesystem{device, fstype, options, made_for}, std::move(owner), until);
  }
  task<result<>> fsck(std::string device, std::string fstype, std::string options, HelperOwner owner,
                      Until until) override {
    return call(helpers_, RepairFilesystem{device, fstype, options}, std::move(owner), until);
  }
  task<result<std::string>> check(std::string device, std::string fstype, HelperOwner owner, Until until) override {
    return call(helpers_, CheckFilesystem{device, fstype}, std::move(owner), until);
  }
  task<result<Inspection>> inspect(std::string device, std::string fstype, bool repair, HelperOwner owner,
                                   Until until) override {
    return call(helpers_, InspectFilesystem{device, fstype, repair}, std::move(owner), until);
  }
  task<result<Extent>> extent(std::string device, std::string fstype, std::string target, HelperOwner owner,
                              Until until) override {
    return call(helpers_, MeasureExtent{device, fstype, target}, std::move(owner), until);
  }
  task<result<>> grow(std::string device, std::string fstype, std::string target, HelperOwner owner,
                      Until until) override {
    return call(helpers_, Grow{device, fstype, target}, std::move(owner), until);
  }
  task<result<>> check_unused(std::string device, HelperOwner owner, Until until) override {
    return call(helpers_, CheckUnused{device}, std::move(owner), until);
  }
  task<result<>> tune(std::string kernel_name, NumberUse use, HelperOwner owner, Until until) override {
    return call(helpers_, Tune{kernel_name, use}, std::move(owner), until);
  }

 private:
  HelperPool& helpers_;
};

class HelperDaemons final : public Daemons {
 public:
  explicit HelperDaemons(HelperPool& helpers) : helpers_(helpers) {}

  task<result<OtherServer>> serving(std::uint32_t index, std::string backend, Until until) override {
    return call(helpers_, FindDaemons{index, backend}, HelperOwner("", "rbd-nbd"), until);
  }
  task<result<>> dismiss(std::uint32_t index, std::string backend, Until until) override {
    return call(helpers_, DismissDaemons{index, backend}, HelperOwner("", "rbd-nbd that is asked to end"), until);
  }

 private:
  HelperPool& helpers_;
};

class HelperLuks final : public Luks {
 public:
  explicit HelperLuks(HelperPool& helpers) : helpers_(helpers) {}

  task<result<LuksHeader>> look(std::string device, HelperOwner owner, Until until) override {
    return call(helpers_, LookForLuks{device}, std::move(owner), until);
  }
  task<result<>> format(std::string device, LuksFormat how, Secret passphrase, HelperOwner owner,
                        Until until) override {
    return call(helpers_, FormatLuks{device, std::move(how), std::move(passphrase)}, std::move(owner), until);
  }
  task<result<>> open(std::string device, std::string mapping, Secret passphrase, LuksOpening how, HelperOwner owner,
                      Until until) override {
    return call(helpers_, OpenLuks{device, mapping, std::move(passphrase), how}, std::move(owner), until);
  }
  task<result<>> resize(std::string mapping, HelperOwner owner, Until until) override {
    return call(helpers_, ResizeLuks{mapping}, std::move(owner), until);
  }
  task<result<>> close(std::string mapping, HelperOwner owner, Until until) override {
    return call(helpers_, CloseLuks{mapping}, std::move(owner), until);
  }
  task<result<bool>> opens(std::string device, int slot, Secret passphrase, HelperOwner owner, Until until) override {
    return call(helpers_, TryLuksKey{device, slot, std::move(passphrase)}, std::move(owner), until);
  }
  task<result<>> add_key(std::string device, int slot, Secret known, Secret added, HelperOwner owner,
                         Until until) override {
    return call(helpers_, AddLuksKey{device, slot, std::move(known), std::move(added)}, std::move(owner), until);
  }
  task<result<>> remove_key(std::string device, int slot, HelperOwner owner, Until until) override {
    return call(helpers_, RemoveLuksKey{device, slot}, std::move(owner), until);
  }

 private:
  HelperPool& helpers_;
};

class HelperFscrypt final : public Fscrypt {
 public:
  explicit HelperFscrypt(HelperPool& helpers) : helpers_(helpers) {}

  task<result<EncryptedFolder>> look(std::string target, HelperOwner owner, Until until) override {
    return call(helpers_, LookForFolder{target}, std::move(owner), until);
  }
  task<result<>> make(std::string target, FscryptSecret secret, HelperOwner owner, Until until) override {
    return call(helpers_, MakeFolder{target, std::move(secret)}, std::move(owner), until);
  }
  task<result<>> unlock(std::string target, FscryptSecret secret, HelperOwner owner, Until until) override {
    return call(helpers_, UnlockFolder{target, std::move(secret)}, std::move(owner), until);
  }
  task<result<>> lock(std::string target, HelperOwner owner, Until until) override {
    return call(helpers_, LockFolder{target}, std::move(owner), until);
  }

 private:
  HelperPool& helpers_;
};

}  // namespace

std::unique_ptr<Daemons> make_daemons(HelperPool& helpers) { return std::make_unique<HelperDaemons>(helpers); }
std::unique_ptr<Mounts> make_mounts(HelperPool& helpers) { return std::make_unique<HelperMounts>(helpers); }
std::unique_ptr<Filesystems> make_filesystems(HelperPool& helpers) {
  return std::make_unique<HelperFilesystems>(helpers);
}
std::unique_ptr<Luks> make_luks(HelperPool& helpers) { return std::make_unique<HelperLuks>(helpers); }
std::unique_ptr<Fscrypt> make_fscrypt(HelperPool& helpers) { return std::make_unique<HelperFscrypt>(helpers); }

}  // namespace corbd::host
