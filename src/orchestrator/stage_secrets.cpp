#include "corbd/orchestrator/stage_secrets.hpp"

#include "corbd/core/backoff.hpp"
#include "corbd/core/log.hpp"

namespace corbd::orchestrator {
namespace {

/// Pauses between two reads of one Secret. An operator who corrects it waits no longer than the last of these.
constexpr Backoff kAgain{std::chrono::seconds(5), std::chrono::seconds(60)};

}  // namespace

StageSecrets::StageSecrets(executor control, Clock& clock, result<kube::Api*> api, Config config)
    : control_(std::move(control)),
      clock_(clock),
      api_(std::move(api)),
      config_(std::move(config)),
      objects_(clock, api_, {config_.driver, config_.node, config_.answer_within}) {}

task<plan::StageSecret> StageSecrets::find(std::string volume_id, std::string persistent_volume, CancelScope& leaving,
                                           volume::SecretAge age) {
  if (!api_) co_return plan::StageSecret{};
  const Until until{clock_.now() + config_.answer_within, &leaving};
  // It may have been recreated since, with another Secret.
  if (age != volume::SecretAge::named_before) objects_.forget(volume_id);
  const auto volume = co_await objects_.find(volume_id, until, std::move(persistent_volume));
  if (!volume) co_return plan::StageSecret{.name = "", .why = volume.error().text};
  const auto& secret = volume->node_stage_secret;
  if (!secret)
    co_return plan::StageSecret{.name = "", .why = "PersistentVolume " + volume->name + " names no nodeStageSecretRef"};
  Known& known = known_[secret->name_space + "/" + secret->name];
  if (const auto under_way = known.under_way) {
    static_cast<void>(co_await under_way->wait(until));
  } else if (age == volume::SecretAge::now || clock_.now() >= known.again) {
    known.under_way = std::make_shared<Event>(control_, clock_);
    co_await read(known, *secret, until);
    std::exchange(known.under_way, nullptr)->set();
  }
  co_return known.last;
}

task<> StageSecrets::read(Known& known, kube::Reference secret, Until until) {
  plan::StageSecret found{.name = "Secret " + secret.name_space + "/" + secret.name};
  auto object = co_await (*api_)->get(kube::secrets_of(secret.name_space), secret.name, until);
  if (object) {
    auto credential = config_.read(kube::data_of_secret(*object));
    wipe(*object);
    if (credential)
      found.credential = std::move(*credential);
    else
      found.why = credential.error().text;
  } else {
    found.why = object.error().error.text;
  }
  const bool same = found.credential == known.last.credential && found.why == known.last.why;
  known.reads = same ? known.reads + 1 : 0;
  known.again = clock_.now() + kAgain.after(known.reads, uniform());
  if (!same && !found.why.empty()) log::warning("secret.not_read", {{"secret", found.name}, {"error", found.why}});
  known.last = std::move(found);
}

}  // namespace corbd::orchestrator
