#include "steps.hpp"

#include "corbd/core/expect.hpp"
#include "corbd/core/failpoint.hpp"
#include "corbd/core/log.hpp"
#include "corbd/core/overloaded.hpp"

namespace corbd::volume {
namespace {

task<result<>> refuse(Error why) { co_return why; }

const failpoint::Places kPlaces(step_places());

}  // namespace

std::vector<std::string> step_places() {
  std::vector<std::string> places;
  for (const auto step : plan::step_names)
    for (const char* when : {".before", ".after"}) places.push_back("step." + std::string(step) + when);
  places.insert(places.end(),
                {"step.lock.broken", "step.evict.fenced", "step.new_key.added", "step.kernel_resize.asked"});
  return places;
}

task<result<>> Steps::run(Volume& volume, const Step& step, const Wish& wish) {
  const std::string point = "step." + std::string(plan::name(step));
  if (auto stopped = failpoint::hit(point + ".before"); !stopped) co_return stopped;
  auto outcome = co_await carry_out(volume, step, wish);
  if (!outcome) {
    Error error = outcome.error();
    // The link ended, not the caller.
    if (error.code == errc::cancelled && volume.link_scopes.size() > 1) error.code = errc::unavailable;
    if (asks_cluster(step) && (error.code == errc::unavailable || error.code == errc::timed_out))
      error.code = errc::unreachable;
    co_return error;
  }
  log::debug("step.done", {{"volume", volume.id}, {"step", plan::name(step)}});
  co_return failpoint::hit(point + ".after");
}

task<result<>> Steps::carry_out(Volume& volume, const Step& step, const Wish& wish) {
  const auto by_kind = Overloaded{
      [&](const step::Look& of) { return look(volume, of, wish); },
      [&](const step::WriteRecord& of) { return records_.write(volume, of); },
      [&](const step::DropRecord&) { return records_.drop(volume, wish); },
      [&](const step::Fence&) { return images_.fence(volume); },
      [&](const step::TryCredential&) { return clients_.try_credential(volume); },
      [&](const step::GiveUpClient&) { return clients_.give_up_judged(volume); },
      [&](const step::Inherit& of) { return adopt_.inherit(volume, of.address); },
      [&](const step::Evict& of) { return holders_.evict(volume, of); },
      [&](const step::OpenImage&) { return images_.open(volume); },
      [&](const step::OpenNext&) { return clients_.open_next(volume); },
      [&](const step::OpenTombstone&) { return images_.open_tombstone(volume); },
      [&](const step::Lock&) { return images_.lock(volume); },
      [&](const step::CloseImage&) { return images_.close(volume); },
      [&](const step::SetFormatMarker&) { return images_.set_format_marker(volume); },
      [&](const step::RemoveFormatMarker&) { return images_.remove_format_marker(volume); },
      [&](const step::WriteNote& of) { return stash_.note(volume, of.note, wish); },
      [&](const step::StartSession&) { return devices_.start_session(volume); },
      [&](const step::ChangeClient&) { return clients_.change(volume); },
      [&](const step::StopSession&) { return devices_.stop_session(volume); },
      [&](const step::KernelConnect&) { return devices_.connect(volume); },
      [&](const step::KernelReconfigure&) { return devices_.reconfigure(volume); },
      [&](const step::KernelResize&) { return devices_.resize(volume); },
      [&](const step::Disconnect&) { return devices_.disconnect(volume); },
      [&](const step::Tune&) { return devices_.tune(volume); },
      [&](const step::AcceptLoss&) { return devices_.accept_loss(volume); },
      [&](const step::Dismiss&) { return adopt_.dismiss(volume); },
      [&](const step::MapKrbd&) { return krbd_.map(volume); },
      [&](const step::UnmapKrbd&) { return krbd_.unmap(volume); },
      [&](const step::MakeKey&) { return keys_.make(volume, wish); },
      [&](const step::ConfirmKey&) { return keys_.confirm(volume, wish); },
      [&](const step::LuksFormat&) { return luks_.format(volume, wish); },
      [&](const step::LuksNote&) { return luks_.note(volume); },
      [&](const step::LuksOpen&) { return luks_.open(volume, wish); },
      [&](const step::LuksResize&) { return luks_.resize(volume); },
      [&](const step::LuksClose&) { return luks_.close(volume); },
      [&](const step::AddKey&) { return luks_.add_key(volume, wish); },
      [&](const step::NewKey&) { return luks_.new_key(volume, wish); },
      [&](const step::RemoveKey& of) { return luks_.remove_key(volume, of.slot); },
      [&](const step::FscryptMake& of) { return fscrypt_.make(volume, of.path, wish); },
      [&](const step::FscryptUnlock& of) { return fscrypt_.unlock(volume, of.path, wish); },
      [&](const step::FscryptLock& of) { return fscrypt_.lock(volume, of.path); },
      [&](const step::Mkfs&) { return mounts_.mkfs(volume); },
      [&](const step::Fsck&) { return mounts_.fsck(volume); },
      [&](const step::Mount& of) { return mounts_.mount(volume, of.path, wish); },
      [&](const step::Bind& of) { return mounts_.bind(volume, of.path, wish); },
      [&](const step::LimitIo& of) { return mounts_.limit_io(volume, of); },
      [&](const step::Grow& of) { return mounts_.grow(volume, of.path, wish); },
      [&](const step::Trim& of) { return mounts_.trim(volume, of); },
      [&](const step::Freeze& of) { return mounts_.freeze(volume, of.path, wish); },
      [&](const step::Thaw& of) { return mounts_.thaw(volume, of.path); },
      [&](const step::Umount& of) { return mounts_.unmount(volume, of.path, of.sync); },
      [&](const step::Unbind& of) { return mounts_.unmount(volume, of.path, of.sync); },
      [&](const step::WriteStash& of) { return stash_.write(volume, of); },
      [&](const step::DropStash& of) { return stash_.drop(volume, of.path); },
  };
  return std::visit(by_kind, step);
}

task<result<>> Steps::look(Volume& volume, const step::Look& step, const Wish& wish) {
  if (step::row(step.fact).needs_image && volume.server.image() == nullptr)
    return refuse({errc::unavailable,
                   "the image of volume " + volume.id + " is not open here, because rbd-nbd serves it: repeat later"});
  switch (step.fact) {
    case Fact::resolved:
      if (const auto* staged = std::get_if<Staged>(&wish)) return finder_.resolve(volume, *staged);
      return refuse({errc::internal, "only a stage resolves an image"});
    case Fact::stash:
      return stash_.look(volume, wish);
    case Fact::served_by_other:
      return adopt_.look(volume);
    case Fact::beside:
      return adopt_.look_beside(volume);
    case Fact::holders:
      return holders_.look(volume);
    case Fact::attachment:
      return ask_attachment(volume);
    case Fact::client_user:
      return clients_.look_at_user(volume);
    case Fact::stage_secret:
      return ask_secret(volume);
    case Fact::first_key:
      return keys_.look_at_first(volume, wish);
    case Fact::encryption:
    case Fact::luks:
    case Fact::keys:
      return luks_.look(volume, step.fact, wish);
    case Fact::folder:
      return fscrypt_.look(volume, step.path);
    case Fact::header:
    case Fact::ownership:
    case Fact::image_size:
    case Fact::has_data:
    case Fact::format_marker:
    case Fact::io_limits:
      return images_.look(volume, step.fact);
    case Fact::probe:
    case Fact::filesystem:
    case Fact::unused:
      return mounts_.look(volume, step);
  }
  broken_expectation("each fact has a reader", std::source_location::current());
}

task<result<>> Steps::ask_secret(Volume& volume) {
  const auto secret = co_await ports_.orchestrator.stage_secret(volume.id, volume.record->claim.volume);
  volume.facts.secret_asked = true;
  if (secret.credential && volume.credentials.take(*secret.credential, errc::unauthenticated))
    log::info("credential.from_secret",
              {{"volume", volume.id}, {"secret", secret.name}, {"user", secret.credential->user}});
  co_return result<>();
}

task<result<>> Steps::ask_attachment(Volume& volume) {
  volume.facts.attachment = co_await ports_.orchestrator.attachment(volume.id);
  co_return result<>();
}

}  // namespace corbd::volume
