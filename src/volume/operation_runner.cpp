#include "operation_runner.hpp"

#include "corbd/core/log.hpp"
#include "neighbours.hpp"

namespace corbd::volume {
namespace {

constexpr int kMaxRounds = 80;  // limit of steps and waits. I7 allows 40 steps
constexpr std::chrono::milliseconds kWaitPause{300};

/// Returns the error of an unpublish or unstage that took everything down, but found something in the folder that is
/// not ours to remove.
result<> leftover_of(const Volume& volume, const Wish& wish) {
  const auto* unstaged = std::get_if<Unstaged>(&wish);
  const auto* unpublished = std::get_if<Unpublished>(&wish);
  if (unstaged == nullptr && unpublished == nullptr) return {};
  const auto place =
      volume.facts.cleared.find(unstaged != nullptr ? staging_target(volume.id, unstaged->path) : unpublished->target);
  return place == volume.facts.cleared.end() ? result<>() : place->second;
}

/// Whether the image is open, and nothing shows yet that it is ours.
bool only_looks(const Volume& volume) {
  return volume.server.image() != nullptr && volume.server.link() == nullptr &&
         !volume.server.has(WriteRight::exclusive_lock);
}

}  // namespace

Error stopping() { return {errc::unavailable, "the agent is stopping: repeat when it is back"}; }

task<result<>> OperationRunner::fulfil(Volume& volume, Wish wish) {
  auto outcome = co_await carry_out(volume, std::move(wish));
  co_await steps_.end_client_change(volume);
  co_return outcome;
}

task<result<>> OperationRunner::carry_out(Volume& volume, Wish wish) {
  auto ready = co_await prepare(volume, wish);
  if (!ready) co_return ready;
  const std::optional<Record> before = volume.record;
  auto outcome = co_await pursue_with_secret(volume, wish);
  if (outcome && volume.record && volume.writes.unsure && must_be_durable(wish))
    outcome = co_await rewrite_record(volume, wish);
  if (outcome) {
    auto dropped = co_await drop_leftover_key(volume, wish, before.has_value());
    co_return dropped ? leftover_of(volume, wish) : dropped;
  }
  const FailedWish failure = after_failure(wish, before, volume.record, outcome.error());
  if (!failure.undo) co_return failure.error;
  log::info("volume.undo", {{"volume", volume.id}, {"wish", name(wish)}, {"cause", failure.error.text}});
  auto undone = co_await pursue(volume, *failure.undo);
  co_return undone ? failure.error : undo_failed(failure.error, undone.error());
}

task<result<>> OperationRunner::pursue_with_secret(Volume& volume, const Wish& wish) {
  auto outcome = co_await pursue(volume, wish);
  if (outcome || shutdown_.begun()) co_return outcome;
  if (!may_have_other_credential(wish, volume.record.has_value(), volume.facts)) co_return outcome;
  co_return co_await ask_secret(volume, wish, outcome.error());
}

task<result<>> OperationRunner::ask_secret(Volume& volume, const Wish& wish, Error refused) {
  const bool had_one = !volume.credentials.known().empty();
  const StageSecret secret = co_await ports_.orchestrator.stage_secret(volume.id, volume.record->claim.volume);
  if (shutdown_.begun()) co_return refused;
  if (!secret.credential || !volume.credentials.take(*secret.credential, refused.code))
    co_return with_secret(std::move(refused), secret, false);
  log::info("credential.from_secret",
            {{"volume", volume.id}, {"secret", secret.name}, {"user", secret.credential->user}});
  // The present server of the volume keeps its client. The next opening uses the credential that the cluster accepts
  // now.
  if (volume.server.link() != nullptr) {
    const Step attempt = step::TryCredential{};
    static_cast<void>(co_await run(volume, attempt, wish));
    co_return with_secret(std::move(refused), secret, volume.credentials.undecided());
  }
  if (volume.server.image() != nullptr) co_await leave_image(volume, wish);
  volume.facts.refused = false;
  auto again = co_await pursue(volume, wish);
  co_return again || !volume.facts.refused ? again : with_secret(again.error(), secret, had_one);
}

task<result<>> OperationRunner::rewrite_record(Volume& volume, const Wish& wish) {
  const Step again = step::WriteRecord{*volume.record};
  auto written = co_await steps_.run(volume, again, wish);
  if (!written) co_return written;
  // Another program may have removed the device since.
  co_return co_await pursue(volume, wish);
}

task<result<>> OperationRunner::drop_leftover_key(Volume& volume, const Wish& wish, bool had_record) {
  if (volume.record || had_record || !std::holds_alternative<Unstaged>(wish)) co_return result<>();
  const auto seen = observe(volume, wish, ports_, config_.boot_id, clock_);
  // A device without a record belongs to another agent, perhaps of a newer version. Its files are not ours to drop.
  if (seen && !seen->devices.empty())
    log::warning("device.left_alone", {{"volume", volume.id},
                                       {"device", device::path(seen->devices.front())},
                                       {"cause",
                                        "it carries the volume ID, but neither a record nor a stash names it: "
                                        "disconnect it with the tool that made it"}});
  if (!seen || !seen->devices.empty()) co_return result<>();
  if (!volume.writes.unsure) co_return co_await ports_.records.drop_key(volume.id);
  const Step drop = step::DropRecord{};
  co_return co_await steps_.run(volume, drop, wish);
}

task<result<>> OperationRunner::prepare(Volume& volume, const Wish& wish) {
  volume.facts = Facts();
  volume.credentials.begin(wish, volume.record.has_value());
  // A stage may bring the pair of before a refused one.
  const bool brings_one = std::holds_alternative<Staged>(wish) || std::holds_alternative<Authorized>(wish);
  if (brings_one && !volume.credentials.undecided()) volume.unused_key.reset();
  if (const auto* staged = std::get_if<Staged>(&wish)) {
    if (staged->attachment.state != Attachment::State::unknown) volume.facts.attachment = staged->attachment;
    auto checked = co_await ports_.files.check_path(staged->path, true);
    // For a stage, NOT_FOUND would mean that there is no such volume.
    if (!checked && checked.error().code == errc::not_found)
      co_return Error{errc::invalid_argument, checked.error().text};
    co_return checked;
  }
  if (const auto* published = std::get_if<Published>(&wish))
    co_return co_await ports_.files.check_path(published->target, false);
  if (const auto* unpublished = std::get_if<Unpublished>(&wish)) {
    auto checked = co_await ports_.files.check_path(unpublished->target, false);
    if (!checked && checked.error().code != errc::not_found) co_return checked;
  }
  if (const auto* unstaged = std::get_if<Unstaged>(&wish)) {
    auto checked = co_await ports_.files.check_path(unstaged->path, true);
    if (!checked && checked.error().code != errc::not_found) co_return checked;
  }
  co_return result<>();
}

/// A step may outlast the beginning of the leave. A later write would come too late: the volume's files may be the next
/// agent's by then.
task<result<>> OperationRunner::run(Volume& volume, const Step& step, const Wish& wish) {
  auto done = co_await steps_.run(volume, step, wish);
  if (!shutdown_.begun()) co_await steps_.keep_credential(volume);
  co_return done;
}

/// Observes the volume, and remembers what its status shows of that.
result<Observation> OperationRunner::look(Volume& volume, const Wish& wish) {
  auto seen = observe(volume, wish, ports_, config_.boot_id, clock_);
  if (!seen) return seen;
  volume.device.gone = seen->devices.empty() || (volume.record && volume.record->device.boot_id != config_.boot_id);
  if (volume.device.gone) volume.history.unserved_since.reset();
  if (seen->devices.empty())
    volume.device.disconnected = false;
  else if (seen->facts.disconnected)
    volume.device.disconnected = true;
  observe_neighbours(*seen, volume, wish, volumes_, ports_);
  return seen;
}

/// Waits a moment. Others may change these facts meanwhile.
task<> OperationRunner::pause(Volume& volume) {
  co_await sleep_until(control_, clock_, clock_.now() + kWaitPause);
  volume.facts.ownership.reset();
  volume.facts.served_by_other.reset();
  volume.facts.attachment.reset();
}

task<result<>> OperationRunner::pursue(Volume& volume, Wish wish) {
  std::string waits_for;
  for (int round = 0; round < kMaxRounds; ++round) {
    // Stop here as after a crash: the next start continues from the facts then.
    if (shutdown_.begun()) co_return stopping();
    const auto seen = look(volume, wish);
    if (!seen) co_return seen.error();
    const Decision decision = decide(volume.id, volume.record, wish, *seen, config_.policy);
    if (std::holds_alternative<Done>(decision)) co_return result<>();
    if (const auto* failed = std::get_if<Refusal>(&decision)) {
      if (failed->leaves) co_await leave_image(volume, wish);
      if (failed->lacks_key) volume.facts.refused = true;
      co_return failed->error;
    }
    if (const auto* wait = std::get_if<Wait>(&decision)) {
      if (std::exchange(waits_for, wait->why) != wait->why)
        log::info("operation.waits", {{"volume", volume.id}, {"wish", name(wish)}, {"waits_for", wait->why}});
      co_await pause(volume);
      continue;
    }
    auto done = co_await run(volume, std::get<Step>(decision), wish);
    health_.note_health(volume, std::string(name(wish)));
    stalls_.note(volume);
    if (!done) co_return co_await step_failed(volume, wish, std::get<Step>(decision), done.error());
  }
  if (only_looks(volume)) co_await leave_image(volume, wish);
  co_return Error{errc::unavailable,
                  std::string(name(wish)) + " of volume " + volume.id +
                      (waits_for.empty() ? " did not come to its end" : " still waits: " + waits_for) + ": repeat it"};
}

/// Releases what the failed step left open, so that it keeps no other node out. Returns the step's error, with its
/// name.
task<result<>> OperationRunner::step_failed(Volume& volume, const Wish& wish, Step step, Error error) {
  if (!std::holds_alternative<step::StopSession>(step) && !std::holds_alternative<step::CloseImage>(step))
    co_await leave_without_device(volume, wish);
  // Somebody locked it by hand in order to work on it, even if a device waits for it here.
  const auto* look = std::get_if<step::Look>(&step);
  if (look != nullptr && look->fact == plan::Fact::ownership && error.code == errc::in_use && only_looks(volume))
    co_await leave_image(volume, wish);
  volume.facts.refused = asks_cluster(step) && is_refusal(error);
  co_return with_context(std::string(plan::name(step)) + " of volume " + volume.id, error);
}

/// A close that does not end in time goes on, and the next wish waits for it first.
task<> OperationRunner::leave_image(Volume& volume, const Wish& wish) {
  if (shutdown_.begun()) co_return;
  if (auto closed = co_await steps_.run(volume, Step(step::CloseImage{}), wish); !closed)
    log::warning("image.not_closed", {{"volume", volume.id}, {"error", closed.error().text}});
}

/// Closes the image of a volume without a device: nothing heals it, and its caller may never come again. Our watch and
/// our lock must not keep other nodes out until then.
task<> OperationRunner::leave_without_device(Volume& volume, Wish wish) {
  if (volume.server.image() == nullptr || shutdown_.begun()) co_return;
  const auto seen = observe(volume, wish, ports_, config_.boot_id, clock_);
  // The kernel may have made a device, or may still make it. That device needs this image.
  if (!seen || !seen->devices.empty() || seen->command) co_return;
  if (volume.server.link() != nullptr)
    if (auto stopped = co_await steps_.run(volume, Step(step::StopSession{}), wish); !stopped)
      log::warning("session.not_left", {{"volume", volume.id}, {"error", stopped.error().text}});
  if (volume.server.image() != nullptr && volume.server.link() == nullptr) co_await leave_image(volume, wish);
}

}  // namespace corbd::volume
