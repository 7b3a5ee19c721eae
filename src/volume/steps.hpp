// Carries out one step of the plan through the ports.
#pragma once

#include "live.hpp"

namespace corbd::volume {

/// Image metadata that stands from before mkfs until after the first mount: only with what the record has of it may a
/// format be repeated.
inline constexpr const char* kFormatMarker = "corbd/format";

/// argon2 at once on this node: each takes 32 MiB (ceph-csi #3472).
inline constexpr std::size_t kKeyDerivations = 2;

/// Failpoints: one before and one after each step, and one inside each step that has two effects.
std::vector<std::string> step_places();

class Steps {
 public:
  using Trouble = std::function<void(Live& live, std::string why)>;
  /// Waits for the operations under way, however long that takes, and closes; nobody waits for it.
  using Bury = std::function<void(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image)>;
  /// The numbers of other volumes' nbd devices, as their records name them.
  using Numbers = std::function<std::vector<std::uint32_t>(const Live& live)>;
  Steps(executor control, Clock& clock, const Ports& ports, const Config& config, Trouble trouble, Bury bury,
        Numbers numbers)
      : clock_(clock),
        ports_(ports),
        config_(config),
        trouble_(std::move(trouble)),
        bury_(std::move(bury)),
        numbers_(std::move(numbers)),
        key_derivations_(std::move(control), clock, "the turn to derive a LUKS key", kKeyDerivations) {}

  /// The step, between its two failpoints. What it learned goes into live.facts.
  task<result<>> run(Live& live, const Step& step, const Wish& wish);

 private:
  task<result<>> dispatch(Live& live, const Step& step, const Wish& wish);
  // steps.cpp
  task<result<>> look(Live& live, const step::Look& step, const Wish& wish);
  task<result<>> look_at_device(Live& live, const step::Look& step);
  task<result<>> write_record(Live& live, const step::WriteRecord& step);
  task<result<>> save(Live& live, Record record);
  task<result<>> save_key(Live& live);
  task<> key_worked(Live& live);
  task<result<>> drop_record(Live& live, const Wish& wish);
  // steps_image.cpp
  task<result<>> fence(Live& live);
  task<result<>> open_image(Live& live);
  task<result<>> open_tombstone(Live& live);
  task<result<>> take_lock(Live& live);
  task<result<>> close_image(Live& live);
  static void forget_image(Live& live);
  /// The very image of a device is gone, whatever has its name now: a fact to decide on, no failure.
  static bool is_gone(const Live& live, const Error& error);
  // steps_resolve.cpp
  task<result<>> resolve(Live& live, const Staged& wish);
  result<> check_encryption(const Live& live, const Staged& wish, image::Resolved& found) const;
  task<result<image::Resolved>> find_image(const Staged& wish);
  task<result<image::Resolved>> find_by_name(const Staged& wish);
  task<result<image::Resolved>> locate(const Staged& wish);
  task<result<image::Resolved>> locate_at(const Staged& wish, image::Place place);
  // steps_device.cpp
  task<result<>> start_session(Live& live);
  task<result<>> kernel_connect(Live& live);
  task<result<>> kernel_reconfigure(Live& live);
  task<result<>> kernel_resize(Live& live);
  task<result<>> tune(Live& live);
  task<result<>> disconnect(Live& live);
  task<result<>> stop_session(Live& live);
  // steps_stash.cpp
  task<result<>> look_at_stash(Live& live, const Wish& wish);
  task<result<>> write_stash(Live& live, const step::WriteStash& step);
  task<result<>> drop_stash(Live& live, std::string staging_path);
  task<result<>> note(Live& live, const Note& wanted, const Wish& wish);
  task<result<>> write_note(Live& live, const Note& wanted);
  // steps_krbd.cpp
  task<result<>> map_krbd(Live& live);
  task<result<>> unmap_krbd(Live& live);
  void admit_kernel(const Live& live, image::Ownership& who) const;
  // steps_adopt.cpp
  task<result<>> look_at_other(Live& live);
  task<result<>> dismiss(Live& live);
  task<result<>> inherit(Live& live, std::string address);
  // steps_luks.cpp
  /// Image metadata; what has its older name, with a dot in front, gets the newer one.
  task<result<std::optional<std::string>>> kept_metadata(Live& live, std::string name);
  /// What opens the volume; not_found when its KMS has no key of it.
  task<result<Secret>> volume_key(Live& live, const Wish& wish);
  task<result<Secret>> first_key(Live& live, const Wish& wish);
  task<result<>> store_key(Live& live, Secret key, Secret passphrase);
  task<result<Slots::Guard>> key_derivation(const Live& live);
  task<result<>> look_at_luks(Live& live, Fact fact, const Wish& wish);
  task<result<>> look_at_keys(Live& live, const Wish& wish);
  task<result<>> luks_format(Live& live, const Wish& wish);
  task<result<>> luks_note(Live& live);
  task<result<>> luks_open(Live& live, const Wish& wish);
  task<result<>> luks_resize(Live& live);
  task<result<>> luks_close(Live& live);
  task<result<>> add_key(Live& live, const Wish& wish);
  task<result<>> new_key(Live& live, const Wish& wish);
  task<result<>> remove_key(Live& live, int slot);
  // steps_filesystem.cpp
  task<result<>> mark(Live& live);
  task<result<>> unmark(Live& live);
  task<result<>> make_filesystem(Live& live, const Wish& wish);
  task<result<>> check_filesystem(Live& live);
  task<result<>> mount(Live& live, std::string target, const Wish& wish);
  task<result<>> unmount(Live& live, std::string path, bool sync);
  task<result<host::Extent>> extent(Live& live, std::string device, std::string target);
  task<result<>> trim(Live& live, std::string target);
  task<result<>> grow(Live& live, std::string target, const Wish& wish);
  task<result<>> bind(Live& live, std::string target, const Wish& wish);

  result<image::Access> access(const Live& live) const;
  /// For whom helpers work on it: its cluster's hang takes none from other clusters' volumes.
  HelperOwner owner(const Live& live) const;
  std::uint64_t dead_conn_timeout_s(const Live& live) const;
  result<device::Seen> device_of(const Live& live) const;
  result<std::uint32_t> device_index(const Live& live) const;
  result<std::string> device_path(const Live& live) const;
  /// What holds the filesystem: the device, or the mapping above it.
  result<std::string> data_path(const Live& live) const;
  Until soon() const;
  Until later() const;
  /// For calls that use the device: they also end with its link.
  Until while_served(Live& live, Until until) const;

  Clock& clock_;
  const Ports& ports_;
  const Config& config_;
  Trouble trouble_;
  Bury bury_;
  Numbers numbers_;
  Slots key_derivations_;
};

}  // namespace corbd::volume
