// Asks the API server about staged volumes: their PersistentVolumes and node-stage secrets.
#include <utility>

#include "corbd/core/clock.hpp"
#include "corbd/kube/api.hpp"
#include "corbd/kube/attachment.hpp"
#include "corbd/kube/own_node.hpp"
#include "inputs.hpp"

namespace corbd::migration {
namespace {

using std::chrono::seconds;

constexpr seconds kOneAnswer{10}, kAllAnswers{60};

struct Question {
  Clock& clock;
  kube::Api& api;
  const std::string& driver;
  const std::string& node;
  time_point until;

  Until one() const { return Until{until}.at_most(clock.now() + kOneAnswer); }
};

task<result<bool>> find_driver(const Question& asking) {
  const auto driver = co_await asking.api.get(kube::kDrivers, asking.driver, asking.one());
  const auto has_any = kube::has_attachments(driver);
  if (!has_any) co_return with_context("CSIDriver " + asking.driver, has_any.error());
  co_return *has_any;
}

/// Asks for the VolumeAttachment by its name, which can be computed.
task<result<kube::VolumeAttachment>> find_attachment(const Question& asking, std::string volume_id) {
  // The server was not asked, so this is not its answer.
  if (asking.node.empty()) co_return Error{errc::internal, "its VolumeAttachment was not asked for without --nodeid"};
  const auto attachment = co_await asking.api.get(
      kube::kVolumeAttachments, kube::volume_attachment_name(volume_id, asking.driver, asking.node), asking.one());
  if (!attachment) co_return with_context("its VolumeAttachment", attachment.error().error);
  co_return kube::volume_attachment_of(*attachment);
}

/// Judges as the agent does (orchestrator::Finder) for a volume that ceph-csi staged.
result<> stayed_here(const Question& asking, const kube::VolumeAttachment& attachment, const StagedAt& at) {
  if (auto here = kube::check_attached(attachment, asking.driver, asking.node); !here)
    return Error{errc::failed_precondition, here.error().text};
  if (!at.stash || !*at.stash || !at.stashed) return {};  // has a finding of its own
  return kube::check_stayed({at.stashed, (*at.stash)->attachment}, attachment, asking.api.ahead());
}

task<result<kube::PersistentVolume>> find_volume(const Question& asking, std::string volume_id, std::string name,
                                                 const result<kube::VolumeAttachment>& attachment) {
  if (name.empty()) {
    if (!attachment && asking.node.empty())
      co_return Error{errc::not_found, "no file of this node names its PersistentVolume, and --nodeid was not given"};
    if (!attachment) co_return attachment.error();
    name = attachment->volume;
    if (name.empty()) co_return Error{errc::not_found, "its VolumeAttachment names no PersistentVolume"};
  }
  const auto object = co_await asking.api.get(kube::kPersistentVolumes, name, asking.one());
  if (!object) co_return with_context("PersistentVolume " + name, object.error().error);
  auto volume = kube::persistent_volume_of(*object);
  if (volume.driver != asking.driver || volume.handle != volume_id)
    co_return Error{errc::failed_precondition, "PersistentVolume " + name + " belongs to another volume"};
  co_return volume;
}

task<result<StageSecret>> find_secret(const Question& asking, kube::Reference reference) {
  auto object = co_await asking.api.get(kube::secrets_of(reference.name_space), reference.name, asking.one());
  if (!object) co_return with_context("Secret " + reference.name_space + "/" + reference.name, object.error().error);
  const auto read = read_stage_secret(kube::data_of_secret(*object));
  wipe(*object);
  co_return read;
}

/// Whether it is an error of the transport, after which the next question would wait as long.
bool is_silence(const Error& error) {
  return error.code == errc::unreachable || error.code == errc::timed_out || error.code == errc::unavailable;
}

task<> ask_all(Question asking, ForecastInputs& into) {
  bool asked_driver = false;
  const auto is_silent = [&](const auto& answer) {
    if (!answer && is_silence(answer.error())) into.api = answer.error();
    return !into.api;
  };
  for (const auto& at : into.staged) {
    if (at.volume_id.empty() || into.facts.contains(at.volume_id)) continue;
    auto& facts = into.facts[at.volume_id];
    const auto attachment = co_await find_attachment(asking, at.volume_id);
    if (is_silent(attachment)) co_return;
    if (!attachment && attachment.error().code == errc::not_found && !std::exchange(asked_driver, true))
      into.attaches = co_await find_driver(asking);
    facts.attached = attachment ? stayed_here(asking, *attachment, at) : result<>(attachment.error());
    facts.volume = co_await find_volume(asking, at.volume_id, at.persistent_volume, attachment);
    if (is_silent(facts.volume)) co_return;
    if (facts.volume && facts.attached) facts.attached = kube::check_bound(*facts.volume, asking.driver, at.volume_id);
    if (!facts.volume || !facts.volume->node_stage_secret) continue;
    facts.secret = co_await find_secret(asking, *facts.volume->node_stage_secret);
    if (is_silent(facts.secret)) co_return;
  }
}

}  // namespace

void ask_api_server(ForecastInputs& inputs, const result<kube::Access>& access, const std::string& node) {
  if (!access) {
    inputs.api = access.error();
    return;
  }
  kube::ask(*access, [&](kube::Api& api, Clock& clock) {
    return ask_all({clock, api, inputs.options.driver, node, clock.now() + kAllAnswers}, inputs);
  });
}

}  // namespace corbd::migration
