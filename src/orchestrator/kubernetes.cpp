#include "corbd/orchestrator/kubernetes.hpp"

namespace corbd::orchestrator {
namespace {

Finder::Config finder_config(const Kubernetes::Config& config, VolumeObjects& objects) {
  Finder::Config made;
  made.driver = config.driver;
  made.node = config.node;
  made.plugins_dir = config.plugins_dir;
  made.learned = [&objects](const std::string& id, const kube::PersistentVolume& volume) { objects.know(id, volume); };
  return made;
}

Orphans::Config orphans_config(const Kubernetes::Config& config, Reporter& reporter) {
  Orphans::Config made;
  made.driver = config.driver;
  made.unstage = config.unstage_orphans;
  made.tell = [&reporter](const std::string& id, kube::Notice notice) { reporter.tell(id, std::move(notice)); };
  return made;
}

}  // namespace

Kubernetes::Kubernetes(executor control, Clock& clock, const Needs& needs, const Config& config)
    : own_(needs.own),
      volumes_(needs.volumes),
      orchestrator_(needs.orchestrator),
      objects_(clock, needs.api, {config.driver, config.node}),
      reporter_(control, clock, needs.api, objects_, volumes_, {config.node}),
      finder_(control, clock, needs.pool, needs.api, orchestrator_.attachments(), volumes_, needs.make_wish,
              finder_config(config, objects_)),
      orphans_(
          control, clock, orchestrator_.attachments(), [this] { return own_.now(); }, volumes_,
          orphans_config(config, reporter_)),
      taint_(control, clock, needs.api, own_, volumes_,
             {.driver = config.driver, .node = config.node, .remove = config.remove_startup_taint}) {}

void Kubernetes::start() {
  own_.on_change([this] {
    orphans_.note_node();
    taint_.note_node();
  });
  own_.start();
  orchestrator_.attachments().start(volumes_);
  finder_.start();
  orphans_.start();
  taint_.start();
}

void Kubernetes::changed(const volume::Change& change) {
  orchestrator_.attachments().note(change);
  reporter_.note(change);
}

void Kubernetes::used(const std::string& volume_id) { orchestrator_.attachments().note_again(volume_id); }

task<result<std::string>> Kubernetes::storage_class(std::string volume_id, Until until) {
  objects_.forget(volume_id);  // it may have been recreated since it was read
  const auto volume = co_await objects_.find(volume_id, until);
  objects_.forget(volume_id);  // it may never be staged here
  if (!volume) co_return volume.error();
  co_return volume->storage_class;
}

task<> Kubernetes::stop(Until until) {
  own_.on_change(nullptr);
  co_await taint_.stop(until);
  co_await finder_.stop(until);
  co_await orphans_.stop(until);
  co_await orchestrator_.stop(until);
  co_await reporter_.stop(until);
}

}  // namespace corbd::orchestrator
