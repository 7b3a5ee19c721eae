#include "device_steps.hpp"

#include <cerrno>
#include <system_error>

#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "corbd/volume/condition.hpp"

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
    case EPERM:
    case EACCES:
      return "the cluster denied a request (errno " + std::to_string(error) +
             "): give its user back the OSD caps 'profile rbd' for the image's pool, its data pool and the pool of its "
             "parent; the application gets no error, and the request is repeated on a new link";
    default:
      return "the cluster answered a request with errno " + std::to_string(error) + " (" +
             std::generic_category().message(error) +
             "); the application gets no error, and the request is repeated on a new link";
  }
}

/// The kernel rounds the timers of requests up (block/blk-timeout.c).
constexpr std::chrono::seconds kTimerSlack{5};

/// A device without a record is rbd-nbd's.
device::Kind kind_of(const Volume& volume) { return volume.record ? volume.record->device.kind : device::kOfRbdNbd; }

bool sends_flushes(const Volume& volume) {
  const image::Image& image = *volume.server.image();
  return image.needs_flush() || image.caches_before_flush();
}

}  // namespace

task<result<>> DeviceSteps::start_session(Volume& volume) {
  // While a volume is taken down, the end of its link is no failure.
  const auto alive = std::make_shared<char>();
  const std::weak_ptr<char> still = alive;
  auto report = [this, &volume, still] {
    if (still.expired()) return;
    const bool used = volume.record && !(volume.record->stagings.empty() && volume.record->publishes.empty());
    if (!used || !volume.server.connected()) return;
    ++volume.history.counts.links_lost;
    resume_stall(volume);
    if (!volume.history.unserved_since) volume.history.unserved_since = clock_.now();
    health_.report_failure(volume, why_ended(volume.server.link()->error()));
  };
  device::ServeOptions options(volume.record->use.read_only);
  options.cache_lost = volume.record->cache_lost;
  if (options.cache_lost) tell_cache_lost(volume);
  auto& devices = ports_.devices.of(kind_of(volume));
  std::unique_ptr<device::Link> link;
  if (const auto index = device_index(volume))
    link = devices.resume(*index, volume.id, *volume.server.image(), options, report);
  if (!link) {
    auto made = devices.serve(*volume.server.image(), options, report);
    if (!made) co_return made.error();
    link = std::move(*made);
  }
  static_cast<void>(take_link(volume));
  volume.server.set(OwnLink{std::move(link), alive});
  co_return result<>();
}

void DeviceSteps::tell_cache_lost(const Volume& volume) const {
  const std::string text = text_of_lost_cache(volume.id);
  log::warning("device.cache_lost",
               {{"volume", volume.id},
                {"cause", text},
                {"hint",
                 "a device that sends no flushes (its queue/write_cache says \"write through\") lost nothing, unless "
                 "rbd_cache_writethrough_until_flush is off"}});
  health_.notify(volume.id, {"CacheLost", true, text});
}

task<result<>> DeviceSteps::accept_loss(Volume& volume) {
  volume.server.link()->accept_loss();
  log::warning("device.loss_accepted", {{"volume", volume.id}, {"effect", "flushes of the device succeed again"}});
  co_return result<>();
}

std::uint64_t DeviceSteps::dead_conn_timeout_s(const Volume& volume) const {
  return volume.record->source.serving.dead_conn_timeout_s.value_or(config_.dead_conn_timeout_s);
}

task<result<>> DeviceSteps::connect(Volume& volume) {
  device::ConnectArgs args;
  args.backend = volume.id;
  args.size = device_bytes(volume.server.image()->size(), volume.record->device.block_size);
  args.block_size = volume.record->device.block_size;
  args.read_only = volume.record->use.read_only;
  args.trim = volume.record->source.serving.trim;
  args.send_flush = sends_flushes(volume);
  args.dead_conn_timeout_s = dead_conn_timeout_s(volume);
  args.avoid = [this, &volume] { return numbers_(volume); };
  volume.device.untuned = true;
  auto index = co_await ports_.devices.of(kind_of(volume)).connect(*volume.server.link(), args, deadline());
  if (!index) co_return index.error();
  volume.server.set_connected(true);
  volume.facts.disconnected = volume.device.disconnected = false;
  log::info("device.connected", {{"volume", volume.id}, {"device", device::path(*index, kind_of(volume))}});
  co_return result<>();
}

task<result<>> DeviceSteps::reconfigure(Volume& volume) {
  const auto device = device_of(volume);
  if (!device) co_return device.error();
  const result<std::uint32_t> index = device->index;
  auto done =
      co_await ports_.devices.of(kind_of(volume))
          .reconnect(*volume.server.link(),
                     {*index, volume.id, dead_conn_timeout_s(volume), volume.record->adopting.has_value()}, deadline());
  if (!done && done.error().code == errc::not_found) {
    // This is the only sign: sysfs keeps showing the device until the last program that has it open closes it.
    if (!std::exchange(volume.device.disconnected, true) && !volume.record->stagings.empty())
      log::error("device.taken_away",
                 {{"volume", volume.id},
                  {"device", device::path(*index, kind_of(volume))},
                  {"error", done.error().text},
                  {"hint",
                   "another program disconnected it: end the volume's pods, so that it is unstaged and staged again"}});
    volume.facts.disconnected = true;
    co_return result<>();
  }
  if (!done) co_return done;
  volume.server.set_connected(true);
  volume.device.disconnected = false;
  const auto began = volume.history.unserved_since.value_or(clock_.now());
  const auto stall = clock_.now() - began;
  volume.history.stall.since = began;
  volume.history.stall.resent_by = clock_.now() + std::chrono::milliseconds(device->io_timeout_ms) + kTimerSlack;
  // Waiting requests stall until the kernel has sent them again, each in its own time: Stalls::watch().
  if (device->waiting == 0) end_stall(volume, clock_.now());
  volume.history.unserved_since.reset();
  volume.other.died.reset();
  volume.history.access_lost = false;
  volume.history.late_lockers.clear();
  log::info("device.reconnected",
            {{"volume", volume.id},
             {"device", device::path(*index, kind_of(volume))},
             {"unserved_ms", std::chrono::duration_cast<std::chrono::milliseconds>(stall).count()}});
  co_return result<>();
}

task<result<>> DeviceSteps::resize(Volume& volume) {
  const auto index = device_index(volume);
  if (!index) co_return index.error();
  // Newer kernels wait for every request in flight before they resize, and all other nbd commands wait behind that. So
  // ask first whether the cluster answers.
  auto asked = co_await volume.server.image()->refresh(deadline());
  if (!asked && (asked.error().code == errc::unavailable || asked.error().code == errc::timed_out))
    co_return Error{errc::unreachable, asked.error().text};
  if (!asked) co_return asked;
  if (auto stopped = failpoint::hit("step.kernel_resize.asked"); !stopped) co_return stopped;
  const std::uint64_t bytes = device_bytes(volume.server.image()->size(), volume.record->device.block_size);
  auto done =
      co_await ports_.devices.of(kind_of(volume)).resize(*volume.server.link(), *index, volume.id, bytes, deadline());
  if (!done) co_return done;
  log::info("device.resized",
            {{"volume", volume.id}, {"device", device::path(*index, kind_of(volume))}, {"bytes", bytes}});
  co_return result<>();
}

task<result<>> DeviceSteps::tune(Volume& volume) {
  const auto device = device_of(volume);
  if (!device) co_return device.error();
  // Use no busy file, and a queue of its own: the helpers of the cluster's volumes may be waiting for this healing.
  const host::NumberUse use{.read_only = volume.record->reads_only(), .flush = sends_flushes(volume)};
  auto tuned = co_await ports_.filesystems.tune(device::name(device->kind, device->index), use,
                                                HelperOwner("", "healing of " + owner(volume).whose),
                                                while_served(volume, deadline()));
  volume.facts.tuned = volume.record->reads_only();
  // rbd-nbd may have connected it read-only, and no flag changes that. A volume that is staged must still leave the
  // node.
  const bool staged = std::ranges::any_of(volume.record->stagings, &plan::Staging::complete);
  if (!tuned && staged && tuned.error().code == errc::failed_precondition) {
    log::warning("device.not_tuned", {{"volume", volume.id}, {"error", tuned.error().text}});
    co_return result<>();
  }
  if (!tuned) co_return tuned;
  volume.device.untuned = false;
  if (device->read_only != use.read_only)
    log::info("device.read_only_set",
              {{"volume", volume.id},
               {"device", device::path(*device)},
               {"read_only", use.read_only},
               {"hint", volume.record->damaged ? "its filesystem is damaged"
                                               : "an earlier user of the number had left it otherwise"}});
  co_return tuned;
}

task<result<>> DeviceSteps::disconnect(Volume& volume) {
  const auto index = device_index(volume);
  if (!index) co_return index.error();
  auto gone = co_await ports_.devices.of(kind_of(volume)).disconnect(*index, volume.id, deadline());
  if (!gone) co_return gone;
  volume.server.set_connected(false);
  volume.facts.disconnected = volume.device.disconnected = true;
  log::info("device.disconnected", {{"volume", volume.id}, {"device", device::path(*index, kind_of(volume))}});
  co_return result<>();
}

task<result<>> DeviceSteps::stop_session(Volume& volume) {
  const bool broken = volume.server.link()->state() == device::Link::State::held;
  if (OwnImage* open = volume.server.own(); open != nullptr && broken) {
    *open->access_lost = true;
    volume.history.access_lost = true;
  }
  resume_stall(volume);
  volume.server.link()->shut();
  volume.server.set_connected(false);
  // Rule 4: wait until the kernel has seen the end of the old link.
  if (const Waited ended = co_await volume.server.link()->ended(deadline()); ended != Waited::ready)
    co_return wait_error(ended, "the end of the link of volume " + volume.id);
  // The volume was given up, perhaps because the cluster does not answer. The tombstone must not wait for the cluster.
  if (volume.record && volume.record->failed) {
    images_.close_in_background(volume, take_link(volume));
    co_return result<>();
  }
  // The operations of a client that was given up may never end.
  const bool gone = volume.server.own() != nullptr && volume.server.own()->image->client_given_up();
  const Waited idle = co_await volume.server.link()->idle(gone ? soon() : deadline());
  if (idle != Waited::ready && gone) {
    images_.close_in_background(volume, take_link(volume));
    co_return result<>();
  }
  volume.server.own_link()->stuck = idle != Waited::ready;
  if (idle != Waited::ready) co_return wait_error(idle, "the operations under way on the image of volume " + volume.id);
  const bool denied = volume.server.link()->error() == EPERM || volume.server.link()->error() == EACCES;
  static_cast<void>(take_link(volume));
  // The image's connection made the link hold, so the image is opened again on another connection.
  if (broken) co_return co_await images_.close(volume);
  if (denied) co_return co_await clients_.note_denial(volume);
  volume.history.denied = 0;
  co_return result<>();
}

}  // namespace corbd::volume
