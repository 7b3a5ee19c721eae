// Port to a block device of this node: the kernel's view of it, and the server side that answers its requests.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "corbd/core/fd.hpp"
#include "corbd/core/result.hpp"
#include "corbd/core/task.hpp"
#include "corbd/core/wait.hpp"
#include "corbd/device/counters.hpp"
#include "corbd/device/figures.hpp"
#include "corbd/device/values.hpp"
#include "corbd/image/block_image.hpp"

namespace corbd::device {

/// The serving side of one device. Control thread, except that `on_stopped` given to serve() is posted there.
class Link {
 public:
  enum class State {
    serving,  ///< answers the kernel
    held,     ///< access to the image was lost: the link ended, and the kernel repeats the unanswered requests on the
              ///< next link (rule 9)
    closed    ///< the kernel's end is gone, the link was shut, or the image answered with an unknown error (error())
  };
  virtual ~Link() = default;  ///< call shut() and wait for idle() first: operations of the image must have ended
  virtual State state() const = 0;
  virtual int error() const = 0;  ///< the image's errno that ended the link; 0: something else ended it
  /// Ends the link (docs/devices.md#ending-a-link): the kernel sees a dead link. Nothing is sent from then on.
  /// Idempotent.
  virtual void shut() = 0;
  /// Ends the link because the image's client was cut off or lost its lock: the state becomes held.
  virtual void hold() = 0;
  /// Ready when the kernel has seen the end (after shut()). Rule 4.
  virtual task<Waited> ended(Until) { co_return Waited::ready; }
  /// Ready when no operation of the image is under way any more (after shut()).
  virtual task<Waited> idle(Until until) = 0;
  /// Stops reading at a message boundary, answers everything that was read, and leaves the socket open. A clean
  /// shutdown uses it.
  virtual task<Waited> drain(Until until) = 0;
  /// Reverts drain(), also one that did not end: the link reads and answers again.
  virtual void undrain() {}
  /// Ends this link after drain() without notice to the kernel, and returns its socket for the process that serves it
  /// next (Devices::resume there). unavailable: something is left to answer, or the link has ended.
  virtual task<result<Fd>> hand_over(Until) {
    co_return Error{errc::unimplemented, "this kind of link cannot be handed over"};
  }
  virtual std::uint64_t in_flight() const = 0;
  /// Age of the oldest operation of the image under way; zero when there is none.
  virtual duration oldest() const = 0;
  /// Bytes of that operation, or still of the one before.
  virtual image::Range oldest_range() const { return {}; }
  /// Whether flushes fail, as ServeOptions::cache_lost asks, until accept_loss().
  virtual bool fails_flushes() const { return false; }
  /// Makes flushes succeed again. A request that was read before may still fail.
  virtual void accept_loss() {}
  /// Figures since serve().
  virtual Figures figures() const { return {}; }
};

/// How a link answers its device.
struct ServeOptions {
  ServeOptions(bool no_writes) : read_only(no_writes) {}  // NOLINT: most links have nothing else to say
  bool read_only = false;
  /// The device's last server died with writes that it had acknowledged and not stored. Every flush, and every write
  /// with FUA, is answered with EIO, because each has a caller of its own.
  bool cache_lost = false;
};

/// Arguments for a new device.
struct ConnectArgs {
  std::string backend;
  std::uint64_t size = 0;          ///< bytes
  std::uint32_t block_size = 512;  ///< bytes
  bool read_only = false;
  bool trim = true;        ///< the device offers discards
  bool send_flush = true;  ///< announces SEND_FLUSH and SEND_FUA. false: the kernel treats an answered write as stored
  std::uint64_t dead_conn_timeout_s = 86400;
  /// Numbers that the device must not get. They belong to devices of other volumes, some of which may be gone: a pod
  /// that was given such a device by its number would get this one. Called on the control thread when the command
  /// begins, because the command may have waited long.
  std::function<std::vector<std::uint32_t>()> avoid;
};

/// Arguments for a device that exists and whose link is dead.
struct ReconnectArgs {
  std::uint32_t index = 0;
  std::string backend;  ///< identifier that the device must carry
  std::uint64_t dead_conn_timeout_s = 86400;
  bool foreign =
      false;  ///< another program made the device: removes its request timeout, which would fail slow requests
};

/// The port to the devices of one kind that this agent serves. Control thread.
class Devices {
 public:
  virtual ~Devices() = default;

  /// Whether the driver is loaded; otherwise failed_precondition "modprobe nbd".
  virtual result<> ready() const = 0;
  /// Returns every configured device, from sysfs; cannot hang.
  virtual result<std::vector<Seen>> inventory() const = 0;
  /// Returns the identifier of one device; "" if it has none.
  virtual std::string backend_of(std::uint32_t index) const {
    const auto all = inventory();
    if (all)
      for (const auto& seen : *all)
        if (seen.index == index) return seen.backend;
    return {};
  }
  /// Returns the configured devices that carry this identifier now. A device that another program makes may appear a
  /// second later.
  virtual result<std::vector<Seen>> find(const std::string& backend) const {
    auto all = inventory();
    if (all) std::erase_if(*all, [&](const Seen& seen) { return seen.backend != backend; });
    return all;
  }
  /// Returns the command under way on the device with this identifier. Until its end is known, do nothing to that
  /// device.
  virtual std::optional<Command> under_way(const std::string&) const { return std::nullopt; }
  /// Refuses new commands (unavailable). Ready when none is under way. A clean shutdown needs this: a process that ends
  /// inside a command keeps its sockets.
  virtual task<Waited> end_commands(Until) { co_return Waited::ready; }
  /// Call this before the process ends, when every link was shut: ends the inherited links that nobody resumed. Ready
  /// when the kernel has seen the end of each.
  virtual task<Waited> end_links(Until) { co_return Waited::ready; }
  /// Starts answering on one end of a new socket pair; the kernel gets the other with connect() or reconnect().
  /// The image outlives the link. on_stopped: the state is no longer `serving`.
  virtual result<std::unique_ptr<Link>> serve(image::BlockImage& image, ServeOptions options,
                                              std::function<void()> on_stopped) = 0;
  /// Keeps the socket of a link that an earlier agent handed over, for resume(). The link is ended if nobody resumes it
  /// within a minute.
  virtual void take(std::uint32_t /*index*/, std::string /*backend*/, Fd /*socket*/) {}
  /// Whether the link of the device with this identifier can still be resumed.
  virtual bool has_inherited(const std::string& /*backend*/) const { return false; }
  /// Resumes the link of that device which an earlier agent handed over for this very identifier (Link::hand_over). It
  /// needs no connect() or reconnect(); a reconnect() to the same device does nothing. Null: there is none, or the
  /// kernel has ended it.
  virtual std::unique_ptr<Link> resume(std::uint32_t, const std::string& /*backend*/, image::BlockImage&,
                                       ServeOptions /*options*/, std::function<void()> /*on_stopped*/) {
    return nullptr;
  }
  /// Makes a new device with the lowest number that is free and not in `avoid`. Returns its index.
  virtual task<result<std::uint32_t>> connect(Link& link, ConnectArgs args, Until until) = 0;
  /// Gives an existing device with a dead link a new link. Never carries a size. unavailable: the kernel dropped our
  /// socket because the old link still lives. not_found: the device takes no link any more, because it was disconnected
  /// or belongs to another volume.
  virtual task<result<>> reconnect(Link& link, ReconnectArgs args, Until until) = 0;
  /// Makes a device larger. Requires a live link with nothing stuck: kernels from 6.9 hold nbd's mutex of the whole
  /// machine until every request in flight has ended. unavailable: the link is not alive, or an operation is older than
  /// a second. A helper gives the command, because this process could not end meanwhile.
  virtual task<result<>> resize(Link& link, std::uint32_t index, std::string backend, std::uint64_t bytes,
                                Until until) = 0;
  /// Disconnects a device that nobody uses, which the caller has checked. Succeeds too if it is not connected, or
  /// carries another identifier by now. A program that has it open, even without using it, keeps its name and
  /// identifier in sysfs until it closes the device. Afterwards the device has neither, and the next program may
  /// connect it.
  virtual task<result<>> disconnect(std::uint32_t index, std::string backend, Until until) = 0;
  /// Calls `dead` on the control thread with the index of a device whose link the kernel reports dead, even if we do
  /// not serve that device.
  virtual void on_link_dead(std::function<void(std::uint32_t index)> dead) = 0;
  virtual Counters counters() const { return {}; }
};

}  // namespace corbd::device
