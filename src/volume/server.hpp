// Our server of a volume: nothing; its image; or, once it was given up, a tombstone. A link to the kernel's device may
// run over either. (rbd-nbd may serve the device while our image is open, so OtherServer stands beside this.)
#pragma once

#include <memory>
#include <optional>
#include <variant>

#include "corbd/device/device.hpp"
#include "corbd/image/image.hpp"
#include "corbd/plan/credential.hpp"

namespace corbd::volume {

struct OwnLink {
  std::unique_ptr<device::Link> link;
  std::shared_ptr<char> alive;  ///< callbacks check it, because the link may outlive this
  bool connected = false;       ///< the kernel's device uses the link
  bool stuck = false;           ///< it was shut, and its operations did not end in time
  bool drained = false;         ///< set as the agent leaves: the link takes no more requests
  int handover_tries = 0;       ///< failed tries in this handover
};

/// The way in which the cluster knows that the image is ours to write.
enum class WriteRight { none, exclusive_lock, writers_mark };

/// Whether the lock or the mark stays for the next client. From the call on, the image does not watch its lock.
enum class LockKept { no, unsure, yes };

struct OwnImage {
  std::unique_ptr<image::Image> image;
  plan::Credential opened_as;  ///< user and key of its client
  /// Set when its client was cut off, or its lock was lost. Callbacks of a closed image find this gone.
  std::shared_ptr<bool> access_lost;
  time_point opened_at{};
  WriteRight right = WriteRight::none;
  duration lock_took{};                        ///< image::Image::lock_took(); max: it was asked for, without an end
  std::optional<std::uint64_t> modified = {};  ///< the image's modify timestamp when we took it
  bool closing = false;                        ///< the close has begun; it may go on after the wait for it ended
  LockKept lock_kept = LockKept::no;           ///< unsure: keep_lock() failed, or did not end in time
};

struct Tombstone {
  std::unique_ptr<image::Image> image;  ///< answers EIO to everything
};

class Server {
 public:
  /// Requires no link: an image outlives its link. Otherwise the process aborts.
  void set(OwnImage image);
  void set(Tombstone tombstone);
  /// Requires an image.
  void set(OwnLink link);
  /// Returns null if nothing is open.
  image::Image* image() const;
  /// Returns null unless the image is open, and no tombstone.
  OwnImage* own() { return std::get_if<OwnImage>(&what_); }
  const OwnImage* own() const { return std::get_if<OwnImage>(&what_); }
  bool is_tombstone() const { return std::holds_alternative<Tombstone>(what_); }
  bool has(WriteRight right) const { return own() != nullptr && own()->right == right; }
  /// Returns null if no link was made.
  OwnLink* own_link() { return link_ ? &*link_ : nullptr; }
  device::Link* link() const { return link_ ? link_->link.get() : nullptr; }
  bool connected() const { return link_ && link_->connected; }
  bool is_session_stuck() const { return link_ && link_->stuck; }
  void set_connected(bool connected);
  /// Returns the longer wait for the cluster: of the device's oldest request, or of a call on the image. The call
  /// counts only while serves().
  duration unanswered() const;
  /// Whether the kernel's device has a link of ours that answers.
  bool serves() const { return connected() && link()->state() == device::Link::State::serving; }
  std::unique_ptr<device::Link> take_link();
  /// Requires no link.
  std::unique_ptr<image::Image> take_image();

 private:
  void expect_no_link() const;
  std::variant<std::monostate, OwnImage, Tombstone> what_;
  std::optional<OwnLink> link_;  ///< over the image of either; declared after it, so that it is destroyed first
};

}  // namespace corbd::volume
