#include "corbd/orchestrator/finder.hpp"

#include <algorithm>
#include <iterator>

#include "corbd/core/backoff.hpp"
#include "corbd/core/log.hpp"
#include "corbd/device/values.hpp"

namespace corbd::orchestrator {
namespace {

/// Pause between two checks of a device that is not ours to serve. The answers change only when its pod does.
constexpr std::chrono::minutes kNotOurs{1};

bool may_pass(errc code) {
  return code != errc::failed_precondition && code != errc::not_found && code != errc::invalid_argument;
}

}  // namespace

Finder::Finder(executor control, Clock& clock, BlockingPool& pool, result<kube::Api*> api, Attachments& attachments,
               volume::Volumes& volumes, MakeWish make_wish, Config config)
    : control_(control),
      clock_(clock),
      pool_(pool),
      api_(std::move(api)),
      attachments_(attachments),
      volumes_(volumes),
      make_wish_(std::move(make_wish)),
      config_(std::move(config)),
      slots_(control, clock, "a turn to ask the API server", config_.at_once),
      gate_(control, clock) {}

Finder::~Finder() { clock_.cancel(timer_); }

void Finder::start() {
  if (api_) look();
}

void Finder::look() {
  for (const auto& device : waiting()) {
    if (left_.contains(device.volume_id)) continue;
    left_.emplace(device.volume_id, "the agent is asking the API server about it");
    if (!gate_.spawn(find(device.volume_id))) left_.erase(device.volume_id);
  }
  timer_ = clock_.schedule(clock_.now() + config_.look_every, [this] { look(); });
}

/// A device of the kernel's client has a server, but its volume cannot be published, expanded or healed before it is
/// ours.
std::vector<volume::Unclaimed> Finder::waiting() const {
  auto all = volumes_.unclaimed();
  std::ranges::move(volumes_.left_to_kernel(), std::back_inserter(all));
  return all;
}

bool Finder::is_unclaimed(const std::string& volume_id) const {
  return std::ranges::any_of(waiting(), [&](const auto& device) { return device.volume_id == volume_id; });
}

task<> Finder::find(std::string volume_id) {
  const Backoff backoff;
  for (std::uint32_t failures = 0; is_unclaimed(volume_id); ++failures) {
    const auto found = co_await attempt(volume_id);
    if (found || stopping_.cancelled()) break;
    const auto& error = found.error();
    if (std::exchange(left_[volume_id], error.text) != error.text)
      log::warning("device.unclaimed", {{"volume", volume_id}, {"code", name(error.code)}, {"cause", error.text}});
    const std::chrono::milliseconds wait =
        may_pass(error.code) ? backoff.after(failures, uniform()) : std::chrono::milliseconds(kNotOurs);
    if (co_await sleep_until(control_, clock_, clock_.now() + wait, &stopping_) == Waited::cancelled) break;
  }
  left_.erase(volume_id);
}

task<result<boost::json::object>> Finder::get(kube::Resource resource, std::string name, std::string what) {
  auto got = co_await (*api_)->get(std::move(resource), name, {clock_.now() + config_.answer_within, &stopping_});
  if (got) co_return std::move(*got);
  co_return with_context(what + name, got.error().error);
}

task<result<>> Finder::attempt(std::string volume_id) {
  auto turn = co_await slots_.take({time_point::max(), &stopping_});
  if (!turn) co_return turn.error();
  const auto all = waiting();
  const auto device = std::ranges::find(all, volume_id, &volume::Unclaimed::volume_id);
  if (device == all.end()) co_return result<>();

  const auto attachment = co_await attachments_.get(volume_id);
  if (!attachment) co_return with_context("its VolumeAttachment", attachment.error().error);
  const auto proof = judge(attachment, {config_.driver, config_.node});
  if (proof.state != plan::Attachment::State::here) co_return Error{errc::unavailable, proof.why};
  if (attachment->volume.empty())
    co_return Error{errc::failed_precondition, "its VolumeAttachment names no PersistentVolume"};

  auto volume_object = co_await get(kube::kPersistentVolumes, attachment->volume, "PersistentVolume ");
  if (!volume_object) co_return volume_object.error();
  const auto volume = kube::persistent_volume_of(*volume_object);
  if (auto checked = kube::check_bound(volume, config_.driver, volume_id); !checked) co_return checked;
  if (config_.learned) config_.learned(volume_id, volume);
  const auto path = staging_path_of(volume, config_.plugins_dir, device->mounts);
  if (!path) co_return path.error();
  const auto traces = co_await pool_.run([at = *path] { return read_traces(at); },
                                         {clock_.now() + config_.answer_within, &stopping_}, "looking at " + *path);
  if (!traces) co_return traces.error();
  if (auto checked = kube::check_stayed(*traces, *attachment, (*api_)->ahead()); !checked) co_return checked;

  const auto& secret = *volume.node_stage_secret;
  auto secret_object =
      co_await get(kube::secrets_of(secret.name_space), secret.name, "Secret " + secret.name_space + "/");
  if (!secret_object) co_return secret_object.error();
  StageArguments arguments{volume_id,
                           *path,
                           volume.fstype,
                           volume.access_modes.front(),
                           volume.mode == "Block",
                           volume.mount_options,
                           attachment->metadata,
                           volume.attributes,
                           kube::data_of_secret(*secret_object)};
  wipe(*secret_object);
  if (!traces->selinux_context.empty()) arguments.mount_flags.push_back("context=\"" + traces->selinux_context + "\"");
  auto wish = make_wish_(arguments);
  if (!wish) co_return wish.error();
  auto& staged = std::get<plan::Staged>(*wish);
  staged.attachment = proof;
  if (volume.claim) staged.claim = {volume.claim->name, volume.claim->name_space, volume.name};
  turn->release();
  log::info("device.claimed", {{"volume", volume_id},
                               {"device", device::path(device->device, device->kind)},
                               {"persistent_volume", volume.name}});
  co_return co_await volumes_.want(volume_id, std::move(*wish), {clock_.now() + config_.stage_within, &stopping_});
}

task<> Finder::stop(Until until) {
  stopping_.cancel();
  clock_.cancel(timer_);
  co_await gate_.close(until);
}

}  // namespace corbd::orchestrator
