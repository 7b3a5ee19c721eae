// Ports of a node on which nothing happens: every call is done at once. For measuring the layers above and beside them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "corbd/volume/shell.hpp"
#include "support/memory_image.hpp"

namespace corbd::test::still {

class Link final : public device::Link {
 public:
  State state() const override { return state_; }
  int error() const override { return 0; }
  void shut() override { state_ = State::closed; }
  void hold() override { state_ = State::held; }
  task<Waited> idle(Until) override { co_return Waited::ready; }
  task<Waited> drain(Until) override { co_return Waited::ready; }
  std::uint64_t in_flight() const override { return 0; }
  duration oldest() const override { return {}; }

 private:
  State state_ = State::serving;
};

class Devices : public device::Devices {
 public:
  result<> ready() const override { return {}; }
  result<std::vector<device::Seen>> inventory() const override { return seen; }
  result<std::unique_ptr<device::Link>> serve(image::BlockImage&, device::ServeOptions,
                                              std::function<void()>) override {
    std::unique_ptr<device::Link> link = std::make_unique<Link>();
    return link;
  }
  task<result<std::uint32_t>> connect(device::Link&, device::ConnectArgs args, Until) override {
    add(args.backend, args.size);
    co_return seen.back().index;
  }
  task<result<>> reconnect(device::Link&, device::ReconnectArgs, Until) override { co_return result<>(); }
  task<result<>> resize(device::Link&, std::uint32_t, std::string, std::uint64_t, Until) override {
    co_return result<>();
  }
  task<result<>> disconnect(std::uint32_t, std::string, Until) override { co_return result<>(); }
  void on_link_dead(std::function<void(std::uint32_t)>) override {}

  void add(std::string backend, std::uint64_t size) {
    device::Seen made;
    made.index = static_cast<std::uint32_t>(seen.size());
    made.backend = std::move(backend);
    made.size = size;
    made.dev_major = 43;
    made.dev_minor = made.index * 32;
    made.io_timeout_ms = 1000;
    seen.push_back(std::move(made));
  }
  std::vector<device::Seen> seen;
};

class Mounts : public host::Mounts {
 public:
  result<host::MountTable> table() const override {
    if (!shown_ || shown_->rows().size() != all.size()) shown_ = std::make_shared<const host::MountList>(all);
    return shown_;
  }
  task<result<>> mount(std::string, std::string, std::string, std::string, HelperOwner, Until) override {
    co_return result<>();
  }
  task<result<>> limit_io(std::string, std::string, HelperOwner, Until) override { co_return result<>(); }
  task<result<>> bind(std::string source, std::string target, bool, std::string, HelperOwner, Until) override {
    host::Mount made;
    made.fstype = "devtmpfs";
    made.root = "/" + source.substr(5);
    made.target = std::move(target);
    all.push_back(std::move(made));
    co_return result<>();
  }
  task<result<>> unmount(std::string, bool, HelperOwner, Until) override { co_return result<>(); }
  task<result<std::uint64_t>> trim(std::string, HelperOwner, Until) override { co_return 0; }
  task<result<std::string>> freeze(std::string, HelperOwner, Until) override { co_return std::string(); }
  task<result<bool>> thaw(std::string, HelperOwner, Until) override { co_return true; }
  task<result<host::TrimPiece>> trim_from(std::string, std::uint64_t, HelperOwner, Until) override {
    co_return host::TrimPiece{};
  }
  task<result<host::Usage>> usage(std::string, Until) override { co_return host::Usage{}; }
  std::vector<host::Mount> all;

 private:
  mutable host::MountTable shown_;
};

class Filesystems : public host::Filesystems {
 public:
  task<result<host::Probe>> probe(std::string, HelperOwner, Until) override { co_return host::Probe{}; }
  task<result<std::string>> mkfs(std::string, std::string, std::string, host::MkfsFor, HelperOwner, Until) override {
    co_return std::string();
  }
  task<result<>> fsck(std::string, std::string, std::string, HelperOwner, Until) override { co_return result<>(); }
  task<result<std::string>> check(std::string, std::string, HelperOwner, Until) override { co_return std::string(); }
  task<result<host::Extent>> extent(std::string, std::string, std::string, HelperOwner, Until) override {
    co_return host::Extent{};
  }
  task<result<>> grow(std::string, std::string, std::string, HelperOwner, Until) override { co_return result<>(); }
  task<result<>> check_unused(std::string, HelperOwner, Until) override { co_return result<>(); }
  task<result<>> tune(std::string, host::NumberUse, HelperOwner, Until) override { co_return result<>(); }
};

/// Every device has an ext4 of 1 MiB.
class Formatted final : public Filesystems {
 public:
  task<result<host::Probe>> probe(std::string, HelperOwner, Until) override {
    co_return host::Probe{host::Probe::Kind::filesystem, "ext4"};
  }
  task<result<host::Extent>> extent(std::string, std::string, std::string, HelperOwner, Until) override {
    co_return host::Extent{1 << 20, 4096};
  }
};

class KernelClient final : public device::KernelClient {
 public:
  result<device::Abilities> abilities() const override { return Error{errc::failed_precondition, "no module"}; }
  result<std::vector<device::Mapped>> inventory() const override { return std::vector<device::Mapped>(); }
  task<result<>> map(device::MapArgs, HelperOwner, Until) override { co_return result<>(); }
  task<result<>> unmap(std::uint32_t, std::string, HelperOwner, Until) override { co_return result<>(); }
};

class Daemons final : public host::Daemons {
 public:
  task<result<host::OtherServer>> serving(std::uint32_t, std::string, Until) override { co_return host::OtherServer{}; }
  task<result<>> dismiss(std::uint32_t, std::string, Until) override { co_return result<>(); }
};

/// Every image is in memory, and opens.
class Clusters : public image::Clusters {
 public:
  task<result<image::Resolved>> resolve(image::Access, image::Name name, Until) override {
    co_return image::Resolved{{"fsid", 1, "", name.image, 0}, 1 << 20, true, {5, 0}, "bench", name};
  }
  task<result<image::Resolved>> locate(image::Access, image::Reserved, std::string, Until) override {
    co_return Error{errc::not_found, "none"};
  }
  task<result<>> fence_dead(image::Access, Until) override { co_return result<>(); }
  task<result<>> inherit(image::Access, std::string, Until) override { co_return result<>(); }
  task<result<image::Header>> header(image::Access, image::Key, Until) override { co_return image::Header{}; }
  task<result<std::unique_ptr<image::Image>>> open(image::Access, image::Key, image::OpenOptions, Until) override {
    co_return std::unique_ptr<image::Image>(std::make_unique<MemoryImage>(1 << 20));
  }
  task<result<image::ImageUsers>> users(image::Access, std::int64_t, std::string, Until) override {
    co_return image::ImageUsers();
  }
  task<result<image::Blocklist>> blocklist(image::Access, Until) override { co_return image::Blocklist{"fsid"}; }
  task<result<std::vector<result<>>>> block(image::Access, std::vector<image::BlocklistEntry> entries,
                                            std::chrono::seconds, Until) override {
    co_return std::vector<result<>>(entries.size(), result<>());
  }
  task<result<std::vector<result<>>>> unblock(image::Access, std::vector<image::BlocklistEntry> entries,
                                              Until) override {
    co_return std::vector<result<>>(entries.size(), result<>());
  }
  task<result<>> shutdown(Until, Until) override { co_return result<>(); }
};

/// Stores records in memory, because the cost of a disk is not measured here.
class Records final : public volume::RecordStore {
 public:
  task<result<volume::Loaded>> load() override { co_return std::move(loaded); }
  task<result<std::vector<plan::Record>>> peek(Until) override { co_return loaded.records; }
  task<result<>> save(plan::Record) override { co_return result<>(); }
  task<result<>> drop(std::string) override { co_return result<>(); }
  task<result<>> save_with_key(plan::Record, Secret) override { co_return result<>(); }
  task<result<Secret>> load_key(const plan::Record&) override { co_return Error{errc::not_found, "none"}; }
  task<result<>> drop_key(std::string) override { co_return result<>(); }
  std::string busy_file(const std::string& id) const override { return id; }
  volume::Loaded loaded;
};

class NodeFiles : public volume::NodeFiles {
 public:
  std::string real_path(std::string path) const override { return path; }
  task<result<>> check_path(std::string, bool) override { co_return result<>(); }
  bool busy(const std::string&) const override { return false; }
  task<result<std::optional<cephcsi::Stash>>> read_stash(std::string) override {
    co_return std::optional<cephcsi::Stash>();
  }
  task<result<>> write_stash(std::string, cephcsi::Stash) override { co_return result<>(); }
  task<result<>> drop_stash(std::string, std::string) override { co_return result<>(); }
};

class ClusterDirectory final : public volume::ClusterDirectory {
 public:
  explicit ClusterDirectory(std::string monitor) : monitor_(std::move(monitor)) {}
  result<volume::Cluster> find(const std::string&) const override { return volume::Cluster{{monitor_}, ""}; }
  result<std::vector<image::Place>> mirrors_of(const image::Place&) const override {
    return std::vector<image::Place>();
  }
  result<std::vector<std::string>> mirrors_of(const std::string&) const override { return std::vector<std::string>(); }

 private:
  const std::string monitor_;
};

class Orchestrator final : public volume::Orchestrator {
 public:
  task<plan::Attachment> attachment(std::string) override { co_return plan::Attachment{}; }
  task<plan::HolderNode> holder_node(plan::HolderQuery) override { co_return plan::HolderNode{}; }
  task<plan::StageSecret> stage_secret(std::string, std::string, volume::SecretAge) override {
    co_return plan::StageSecret{};
  }
};

}  // namespace corbd::test::still
