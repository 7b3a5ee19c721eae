// The steps for the device: our link, and the kernel's side.
#include <cerrno>
#include <system_error>

#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "steps.hpp"

namespace corbd::volume {
namespace {

std::string why_ended(int error) {
  switch (error) {
    case 0:
      return "its link ended";
    case ESHUTDOWN:
    case EROFS:
    case ENOTCONN:
      return "the cluster cut its client off";
    default:
      return "the cluster answered a request with errno " + std::to_string(error) + " (" +
             std::generic_category().message(error) +
             "); the application is not told, and the request is repeated on a new link";
  }
}

/// The kernel rounds the timers of requests up (block/blk-timeout.c).
constexpr std::chrono::seconds kTimerSlack{5};

/// A device without a record is rbd-nbd's.
device::Kind kind_of(const Volume& live) { return live.record ? live.record->kind : device::Kind::nbd; }

}  // namespace

task<result<>> Steps::start_session(Volume& live) {
  // While a volume is taken down, the end of its link is no failure.
  auto report = [this, &live, alive = std::weak_ptr<char>(live.alive)] {
    if (alive.expired()) return;
    const bool used = live.record && !(live.record->stagings.empty() && live.record->publishes.empty());
    if (!used || !live.connected) return;
    ++live.counts.links_lost;
    resume_stall(live);
    if (!live.unserved_since) live.unserved_since = clock_.now();
    report_failure_(live, why_ended(live.link ? live.link->error() : 0));
  };
  device::ServeOptions options(live.record->read_only);
  options.cache_lost = live.record->cache_lost;
  if (options.cache_lost)
    log::warning(
        "device.cache_lost",
        {{"volume", live.id},
         {"hint",
          "rbd-nbd died, and writes that its cache had acknowledged but not stored may be lost: the next flush "
          "fails, so that fsync does not claim that they are stored"}});
  // Healing writes into the record that it was told.
  options.on_loss_told = [this, &live, alive = std::weak_ptr<char>(live.alive)] {
    if (!alive.expired()) report_failure_(live, "a flush failed, because rbd-nbd had lost writes");
  };
  auto& devices = ports_.devices.of(kind_of(live));
  std::unique_ptr<device::Link> link;
  if (const auto index = device_index(live)) link = devices.resume(*index, live.id, *live.image, options, report);
  if (!link) {
    auto made = devices.serve(*live.image, options, report);
    if (!made) co_return made.error();
    link = std::move(*made);
  }
  static_cast<void>(take_link(live));
  live.link = std::move(link);
  live.connected = false;
  co_return result<>();
}

task<result<>> Steps::kernel_connect(Volume& live) {
  device::ConnectArgs args;
  args.backend = live.id;
  args.size = device_bytes(live.image->size(), live.record->block_size);
  args.block_size = live.record->block_size;
  args.read_only = live.record->read_only;
  args.trim = live.record->source.serving.trim;
  args.dead_conn_timeout_s = dead_conn_timeout_s(live);
  args.avoid = [this, &live] { return numbers_(live); };
  live.untuned = true;
  auto index = co_await ports_.devices.of(kind_of(live)).connect(*live.link, args, soon());
  if (!index) co_return index.error();
  live.connected = true;
  live.facts.disconnected = live.disconnected = false;
  log::info("device.connected", {{"volume", live.id}, {"device", device::path(*index, kind_of(live))}});
  co_return result<>();
}

task<result<>> Steps::kernel_reconfigure(Volume& live) {
  const auto device = device_of(live);
  if (!device) co_return device.error();
  const result<std::uint32_t> index = device->index;
  auto done = co_await ports_.devices.of(kind_of(live))
                  .reconnect(*live.link, {*index, live.id, dead_conn_timeout_s(live), live.record->adopting}, soon());
  if (!done && done.error().code == errc::not_found) {
    // Nothing shows it earlier: sysfs keeps showing the device until the last program that has it open closes it.
    if (!std::exchange(live.disconnected, true) && !live.record->stagings.empty())
      log::error("device.taken_away",
                 {{"volume", live.id},
                  {"device", device::path(*index, kind_of(live))},
                  {"error", done.error().text},
                  {"hint",
                   "another program disconnected it: end the volume's pods, so that it is unstaged and staged again"}});
    live.facts.disconnected = true;
    co_return result<>();
  }
  if (!done) co_return done;
  live.connected = true;
  live.disconnected = false;
  const auto began = live.unserved_since.value_or(clock_.now());
  const auto stall = clock_.now() - began;
  live.stalled_since = began;
  live.resent_by = clock_.now() + std::chrono::milliseconds(device->io_timeout_ms) + kTimerSlack;
  // Requests that wait stall until the kernel has sent them again, each in its own time: watch_stall().
  if (device->waiting == 0) end_stall(live, clock_.now());
  live.unserved_since.reset();
  live.other_died.reset();
  live.cut_off = false;
  log::info("device.reconnected",
            {{"volume", live.id},
             {"device", device::path(*index, kind_of(live))},
             {"unserved_ms", std::chrono::duration_cast<std::chrono::milliseconds>(stall).count()}});
  co_return result<>();
}

task<result<>> Steps::kernel_resize(Volume& live) {
  const auto index = device_index(live);
  if (!index) co_return index.error();
  // Newer kernels wait for every request in flight before they resize, and all other nbd commands wait behind that. So
  // ask first whether the cluster answers.
  auto asked = co_await live.image->refresh(soon());
  if (!asked && (asked.error().code == errc::unavailable || asked.error().code == errc::timed_out))
    co_return Error{errc::unreachable, asked.error().text};
  if (!asked) co_return asked;
  if (auto stopped = failpoint::hit("step.kernel_resize.asked"); !stopped) co_return stopped;
  const std::uint64_t bytes = device_bytes(live.image->size(), live.record->block_size);
  auto done = co_await ports_.devices.of(kind_of(live)).resize(*live.link, *index, live.id, bytes, soon());
  if (!done) co_return done;
  log::info("device.resized", {{"volume", live.id}, {"device", device::path(*index, kind_of(live))}, {"bytes", bytes}});
  co_return result<>();
}

task<result<>> Steps::tune(Volume& live) {
  const auto index = device_index(live);
  if (!index) co_return index.error();
  // No busy file, and a queue of its own: the helpers of the cluster's volumes may be waiting for this healing.
  auto tuned =
      co_await ports_.filesystems.tune(device::name(kind_of(live), *index),
                                       HelperOwner("", "healing of " + owner(live).whose), while_served(live, soon()));
  if (tuned) live.untuned = false;
  co_return tuned;
}

task<result<>> Steps::disconnect(Volume& live) {
  const auto index = device_index(live);
  if (!index) co_return index.error();
  auto gone = co_await ports_.devices.of(kind_of(live)).disconnect(*index, live.id, soon());
  if (!gone) co_return gone;
  live.connected = false;
  live.facts.disconnected = live.disconnected = true;
  log::info("device.disconnected", {{"volume", live.id}, {"device", device::path(*index, kind_of(live))}});
  co_return result<>();
}

task<result<>> Steps::stop_session(Volume& live) {
  const bool broken = live.link->state() == device::Link::State::held;
  live.cut_off |= broken && !live.tombstone;
  live.image_lost |= broken;
  resume_stall(live);
  live.link->shut();
  live.connected = false;
  // Rule 4.
  if (const Waited ended = co_await live.link->ended(soon()); ended != Waited::ready)
    co_return wait_error(ended, "the end of the link of volume " + live.id);
  // The volume was given up, perhaps because the cluster does not answer. The tombstone must not wait for the cluster.
  if (live.record && live.record->failed) {
    bury_(take_link(live), std::move(live.image));
    forget_image(live);
    co_return result<>();
  }
  const Waited idle = co_await live.link->idle(soon());
  if (idle != Waited::ready) co_return wait_error(idle, "the operations under way on the image of volume " + live.id);
  static_cast<void>(take_link(live));
  // The image's connection made the link hold, so the image is opened again on another connection.
  if (broken) co_return co_await close_image(live);
  co_return result<>();
}

}  // namespace corbd::volume
