// Carries out one step of the plan through the ports.
#pragma once

#include "volume.hpp"

namespace corbd::volume {

/// Image metadata that exists from before mkfs until after the first mount. Only a record with the same marker allows
/// repeating the format.
inline constexpr const char* kFormatMarker = "corbd/format";

/// How many argon2 runs this node allows at once: each takes 32 MiB (ceph-csi #3472).
inline constexpr std::size_t kKeyDerivations = 2;

/// Failpoints: one before and one after each step, and one inside each step that has two effects.
std::vector<std::string> step_places();

class Steps {
 public:
  using ReportFailure = std::function<void(Volume& volume, const std::string& why)>;
  /// Waits for the requests in flight, however long that takes, then closes. Nobody waits for it.
  using CloseLater = std::function<void(std::unique_ptr<device::Link> link, std::unique_ptr<image::Image> image)>;
  /// The numbers of other volumes' nbd devices: records have them, and paths that show a raw device.
  using Numbers = std::function<std::vector<std::uint32_t>(const Volume& volume)>;
  using Notify = std::function<void(const Volume& volume, Notice notice)>;
  Steps(executor control, Clock& clock, const Ports& ports, const Config& config, ReportFailure report_failure,
        CloseLater close_in_background, Numbers numbers, Notify notify)
      : clock_(clock),
        ports_(ports),
        config_(config),
        report_failure_(std::move(report_failure)),
        close_later_(std::move(close_in_background)),
        numbers_(std::move(numbers)),
        notify_(std::move(notify)),
        key_derivations_(std::move(control), clock, "the turn to derive a LUKS key", kKeyDerivations) {}

  /// Runs the step between its two failpoints. What it learns goes into volume.facts.
  task<result<>> run(Volume& volume, const Step& step, const Wish& wish);
  /// A record or a key is being written, or removed.
  bool writing() const { return writes_ > 0; }

 private:
  /// As long as it lives, something is being written.
  class Write {
   public:
    explicit Write(std::size_t& all) : all_(all) { ++all_; }
    ~Write() { --all_; }
    Write(const Write&) = delete;
    Write& operator=(const Write&) = delete;

   private:
    std::size_t& all_;
  };
  task<result<>> dispatch(Volume& volume, const Step& step, const Wish& wish);
  // steps.cpp
  task<result<>> look(Volume& volume, const step::Look& step, const Wish& wish);
  task<result<>> look_at_device(Volume& volume, const step::Look& step);
  task<result<>> write_record(Volume& volume, const step::WriteRecord& step);
  task<result<>> save(Volume& volume, Record record);
  task<result<>> save_key(Volume& volume);
  task<> key_worked(Volume& volume);
  task<result<>> drop_record(Volume& volume, const Wish& wish);
  // steps_image.cpp
  task<result<>> fence(Volume& volume);
  task<result<>> open_image(Volume& volume);
  task<result<>> open_tombstone(Volume& volume);
  task<result<>> take_lock(Volume& volume);
  task<result<>> close_image(Volume& volume);
  static void forget_image(Volume& volume);
  /// The image behind the device is gone, whatever has its name now. This is a fact for the planner, not a failure.
  static bool is_gone(const Volume& volume, const Error& error);
  // steps_holders.cpp
  task<result<>> look_at_holders(Volume& volume);
  task<result<>> evict(Volume& volume, const step::Evict& step);
  // steps_resolve.cpp
  task<result<>> resolve(Volume& volume, const Staged& wish);
  result<> check_encryption(const Volume& volume, const Staged& wish, image::Resolved& found) const;
  task<result<image::Resolved>> find_image(const Staged& wish);
  task<result<image::Resolved>> find_by_name(const Staged& wish);
  task<result<image::Resolved>> locate(const Staged& wish);
  task<result<image::Resolved>> locate_at(const Staged& wish, image::Place place);
  // steps_device.cpp
  task<result<>> start_session(Volume& volume);
  task<result<>> kernel_connect(Volume& volume);
  task<result<>> kernel_reconfigure(Volume& volume);
  task<result<>> kernel_resize(Volume& volume);
  task<result<>> tune(Volume& volume);
  task<result<>> disconnect(Volume& volume);
  task<result<>> stop_session(Volume& volume);
  // steps_stash.cpp
  task<result<>> look_at_stash(Volume& volume, const Wish& wish);
  task<result<>> write_stash(Volume& volume, const step::WriteStash& step);
  task<result<>> drop_stash(Volume& volume, std::string staging_path);
  task<result<>> note(Volume& volume, const Note& wanted, const Wish& wish);
  task<result<>> write_note(Volume& volume, const Note& wanted);
  // steps_krbd.cpp
  task<result<>> map_krbd(Volume& volume);
  task<result<>> unmap_krbd(Volume& volume);
  void admit_kernel(const Volume& volume, image::Ownership& who) const;
  // steps_adopt.cpp
  task<result<>> look_at_other(Volume& volume);
  void watch_silence(Volume& volume);
  task<> look_at_uncached(Volume& volume, std::uint32_t index, std::string process);
  task<result<>> dismiss(Volume& volume);
  task<result<>> inherit(Volume& volume, std::string address);
  // steps_luks.cpp
  /// Reads image metadata. An entry with the older name, a dot in front, is renamed.
  task<result<std::optional<std::string>>> kept_metadata(Volume& volume, std::string name);
  /// The key that opens the volume; not_found if its KMS has none.
  task<result<Secret>> volume_key(Volume& volume, const Wish& wish);
  task<result<Secret>> first_key(Volume& volume, const Wish& wish);
  task<result<>> store_key(Volume& volume, Secret key, Secret passphrase);
  task<result<Slots::Guard>> key_derivation(const Volume& volume);
  task<result<>> look_at_luks(Volume& volume, Fact fact, const Wish& wish);
  task<result<>> look_at_keys(Volume& volume, const Wish& wish);
  task<result<>> luks_format(Volume& volume, const Wish& wish);
  task<result<>> luks_note(Volume& volume);
  task<result<>> luks_open(Volume& volume, const Wish& wish);
  task<result<>> luks_resize(Volume& volume);
  task<result<>> luks_close(Volume& volume);
  task<result<>> add_key(Volume& volume, const Wish& wish);
  task<result<>> new_key(Volume& volume, const Wish& wish);
  task<result<>> remove_key(Volume& volume, int slot);
  // steps_filesystem.cpp
  task<result<>> mark(Volume& volume);
  task<result<>> unmark(Volume& volume);
  task<result<>> make_filesystem(Volume& volume, const Wish& wish);
  task<result<>> check_filesystem(Volume& volume);
  task<result<>> mount(Volume& volume, std::string target, const Wish& wish);
  task<result<>> unmount(Volume& volume, std::string path, bool sync);
  task<result<host::Extent>> extent(Volume& volume, std::string device, std::string target);
  task<result<>> trim(Volume& volume, std::string target);
  task<result<>> grow(Volume& volume, std::string target, const Wish& wish);
  task<result<>> bind(Volume& volume, std::string target, const Wish& wish);

  result<image::Access> access(const Volume& volume) const;
  /// Whose helpers work on the volume: its cluster's, so that a hang takes no helper from other clusters.
  HelperOwner owner(const Volume& volume) const;
  std::uint64_t dead_conn_timeout_s(const Volume& volume) const;
  result<device::Seen> device_of(const Volume& volume) const;
  result<std::uint32_t> device_index(const Volume& volume) const;
  result<std::string> device_path(const Volume& volume) const;
  /// What holds the filesystem: the device, or the mapping above it.
  result<std::string> data_path(const Volume& volume) const;
  Until soon() const;
  Until later() const;
  /// For calls that use the device: they also end with its link.
  Until while_served(Volume& volume, Until until) const;

  Clock& clock_;
  const Ports& ports_;
  const Config& config_;
  ReportFailure report_failure_;
  CloseLater close_later_;
  Numbers numbers_;
  Notify notify_;
  Slots key_derivations_;
  std::size_t writes_ = 0;  ///< that are under way
};

}  // namespace corbd::volume
