#include "corbd/ops/node_health.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "corbd/volume/condition.hpp"

namespace corbd::ops {
namespace {

using Holds = Component::Holds;

std::string age(duration of) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(of).count();
  if (seconds < 120) return std::to_string(seconds) + " s";
  return seconds < 7200 ? std::to_string(seconds / 60) + " min" : std::to_string(seconds / 3600) + " h";
}

std::string many(std::uint64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

Component good(std::string name, std::string text) { return {std::move(name), Verdict::ok, std::move(text)}; }
Component warning(std::string name, std::string text, Holds holds = Holds::nothing) {
  return {std::move(name), Verdict::warning, std::move(text), holds};
}
Component critical(std::string name, std::string text, Holds holds = Holds::nothing) {
  return {std::move(name), Verdict::critical, std::move(text), holds};
}

Component needed(std::string name, const result<>& there, std::string when_there) {
  return there ? good(std::move(name), std::move(when_there))
               : critical(std::move(name), there.error().text, Holds::serving);
}

Component told_to_end(const ToldFacts& facts) {
  const std::string text = "was told to end " + age(facts.since) + " ago; serves on until the next agent asks, for " +
                           age(std::max(facts.grace - facts.since, duration::zero())) + " more at most";
  if (facts.since < kNextComesWithin) return warning("agent", text);
  return critical("agent", text +
                               ": I/O then waits for the next pod. See why that one does not serve (kubectl get pods, "
                               "describe), or take the rollout back (kubectl rollout undo)");
}

Component agent_itself(const NodeFacts& facts) {
  if (facts.loop_lag >= kTooLate)
    return critical("agent",
                    "the control thread runs " +
                        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(facts.loop_lag).count()) +
                        " s late: the log and `top -H` say what holds it up",
                    Holds::living);
  if (facts.told_to_end) return told_to_end(*facts.told_to_end);
  if (facts.cordoned)
    return warning("agent", "drained since " + *facts.cordoned +
                                ": stages no new volume, also after a restart (corbd drain --undo ends that)");
  return good("agent", "stages and serves volumes");
}

Component kubelet(const Registration& registration) {
  using State = Registration::State;
  switch (registration.state) {
    case State::unasked:
      return good("kubelet",
                  "this agent does not register itself" + (registration.text.empty() ? "" : ": " + registration.text));
    case State::elsewhere:
      return warning("kubelet", "another program registers this driver: " + registration.text);
    case State::registered:
      return good("kubelet", "has registered this driver");
    case State::waits:
      return warning(
          "kubelet",
          "has not registered this driver yet" +
              (registration.text.empty() ? ": if that lasts, kubelet's log says why" : ": " + registration.text),
          Holds::serving);
    case State::refused:
      break;
  }
  return critical("kubelet",
                  "refuses this driver: " + registration.text + ". The agent asks again; kubelet's log says more",
                  Holds::serving);
}

Component outsider(const char* name, const Outsider& one, const char* without) {
  using State = Outsider::State;
  switch (one.state) {
    case State::unused:
      return good(name, "not used: " + one.text);
    case State::not_asked:
      return good(name, "not asked yet");
    case State::answers:
      return good(name, "answers");
    case State::silent:
      break;
  }
  return warning(name, one.text + ". Meanwhile " + without);
}

Component metrics(const PortFacts& facts) {
  const std::string text = "not served for " + age(facts.since) + ": " + facts.refused + ". The agent tries again";
  if (facts.since < kPortIsFreeWithin) return good("metrics", text);
  return warning("metrics", text);
}

Component keeper(const std::optional<KeeperFacts>& facts) {
  if (!facts) return good("keeper", "none: requests in flight wait for the kernel if the agent dies (--keeper)");
  if (facts->deaf)
    return warning("keeper", "does not hear this agent, so a link may not be kept: restart the agent when it suits");
  if (facts->deaths == 0) return good("keeper", "starts this agent again if it dies, and has its links meanwhile");
  const std::string text =
      "has started this agent again " + many(facts->deaths, "time") + ", last " + age(facts->since_last) + " ago " +
      (facts->signal == 0 ? "when it could not be started" : "after signal " + std::to_string(facts->signal));
  if (facts->since_last >= kDeathIsNews) return good("keeper", text);
  if (facts->pause >= kPauseOfALoop && facts->since_last - facts->pause < kLoopIsOver)
    return critical("keeper", text + ", after a pause of " + age(facts->pause) +
                                  ": agents die again and again, and I/O stands still in each pause. The log before "
                                  "each death says more; go back to the version or the settings that worked");
  return warning("keeper", text + ": the log before that says more, or `dmesg` if memory was short");
}

Component volumes_by_state(const NodeFacts& facts) {
  std::string line;
  Verdict worst = Verdict::ok;
  for (const auto& [health, count] : facts.volumes) {
    line += (line.empty() ? "" : ", ") + std::to_string(count) + " " + std::string(name(health));
    worst = std::max(worst, verdict(health));
  }
  if (line.empty()) line = "none";
  if (facts.caches_lost > 0) {
    line += ", " + std::to_string(facts.caches_lost) + " whose flushes fail because rbd-nbd lost their writes";
    worst = std::max(worst, Verdict::warning);
  }
  if (facts.kernel_refused > 0) {
    line += ", " + std::to_string(facts.kernel_refused) + " whose kernel client the cluster has blocklisted";
    worst = Verdict::critical;
  }
  if (worst != Verdict::ok) line += " (see: corbd volumes -o wide)";
  return {"volumes", worst, std::move(line)};
}

Component capacity(const NodeFacts& facts) {
  std::uint64_t count = 0;
  for (const auto& [health, of] : facts.volumes) count += of;
  const std::string room = "for " + many(facts.capacity.volumes, "volume") + ", by " + facts.capacity.bound + "; has " +
                           std::to_string(count);
  if (count < facts.capacity.volumes) return good("room", room);
  return warning("room", room + ": stages no new volume (see docs/operations.md, \"How many volumes\")");
}

Component unclaimed(const device::Traits& kind, std::uint32_t count) {
  const std::string devices = std::string(kind.prefix) + " devices";
  if (kind.served)
    return warning(devices, many(count, "unclaimed device") +
                                ": no record or no Ceph key here. Another program serves them, or nobody does (see: "
                                "corbd volumes; restart kubelet)");
  return good(devices, many(count, "device") +
                           " of the kernel client, staged by ceph-csi. The next stage makes them known here (see: "
                           "corbd volumes; restart kubelet)");
}

Component cluster(const std::string& id, const ClusterFacts& facts) {
  std::string line = many(facts.volumes, "volume");
  if (facts.unserved > 0) line += ", " + std::to_string(facts.unserved) + " without a server";
  if (facts.does_not_answer) line += ", does not answer";
  if (!facts.pool_full.empty()) line += ", " + facts.pool_full;
  if (!facts.node_fenced.empty()) line += ", " + facts.node_fenced;
  if (facts.refused_again > 0)
    line += ", " + std::to_string(facts.refused_again) +
            " that the next start or handover will not serve: " + facts.why_refused;
  const bool stalled = facts.oldest_request >= kStalled;
  if (stalled) line += ", a request has waited for " + age(facts.oldest_request);
  const bool unusable = facts.does_not_answer || !facts.pool_full.empty() || !facts.node_fenced.empty();
  const auto verdict = unusable                             ? Verdict::critical
                       : stalled || facts.refused_again > 0 ? Verdict::warning
                                                            : Verdict::ok;
  return {"cluster " + id, verdict, std::move(line)};
}

Component helpers(const std::vector<Hanging>& hanging) {
  if (hanging.empty()) return good("helpers", "none hangs");
  std::string line;
  for (const auto& one : hanging)
    line += (line.empty() ? "" : "; ") + std::string("pid ") + std::to_string(one.pid) + " has hung for " +
            age(one.since) + ": " + one.what;
  return warning("helpers", std::move(line));
}

}  // namespace

std::string_view name(Verdict verdict) {
  return verdict == Verdict::ok ? "ok" : verdict == Verdict::warning ? "warning" : "critical";
}

Verdict verdict(volume::Health health) {
  switch (health) {
    case volume::Health::staging:
    case volume::Health::staged:
    case volume::Health::unstaging:
      return Verdict::ok;
    case volume::Health::absent:
    case volume::Health::reconnecting:
      return Verdict::warning;
    case volume::Health::unproven:
    case volume::Health::lost:
    case volume::Health::failed:
      break;
  }
  return Verdict::critical;
}

void tally(NodeFacts& into, const std::vector<volume::Status>& all, const heal::HealQueue& queue) {
  std::set<std::string> unanswered;  // clusters that did not answer a volume which waits
  for (const auto& status : all) {
    ++into.volumes[status.health];
    if (status.cache_lost) ++into.caches_lost;
    if (!status.kernel_refused.empty()) ++into.kernel_refused;
    auto& cluster = into.clusters[status.cluster_id];
    ++cluster.volumes;
    if (status.unserved) ++cluster.unserved;
    if (!status.refused_again.empty()) {
      ++cluster.refused_again;
      cluster.why_refused = status.refused_again;
    }
    cluster.oldest_request = std::max(cluster.oldest_request, status.oldest);
    if (status.in_flight > 0 && status.oldest < volume::kUnreachableAfter) cluster.answers_some = true;
    if (status.last_error && status.last_error->code == errc::node_fenced)
      cluster.node_fenced = status.last_error->text;
    if (status.unserved && status.last_error && status.last_error->code == errc::pool_full)
      cluster.pool_full = status.last_error->text;
    if (status.unserved && status.last_error && status.last_error->code == errc::unreachable)
      unanswered.insert(status.cluster_id);
  }
  // A full pool opens the breaker, too.
  for (auto& [id, cluster] : into.clusters)
    cluster.does_not_answer = queue.waits_for_cluster(id) && (cluster.pool_full.empty() || unanswered.contains(id));
}

Verdict NodeHealth::verdict() const {
  Verdict worst = Verdict::ok;
  for (const auto& one : components) worst = std::max(worst, one.verdict);
  return worst;
}

bool NodeHealth::ready() const {
  return std::ranges::all_of(components, [](const auto& one) { return one.holds == Holds::nothing; });
}

bool NodeHealth::alive() const {
  return std::ranges::none_of(components, [](const auto& one) { return one.holds == Holds::living; });
}

std::vector<std::string> NodeHealth::not_ready() const {
  std::vector<std::string> all;
  for (const auto& one : components)
    if (one.holds != Holds::nothing) all.push_back(one.name + ": " + one.text);
  return all;
}

bool Announcements::Subject::step(bool wrong, time_point now) {
  if (!wrong) {
    wrong_since.reset();
    return std::exchange(told, false);
  }
  if (!wrong_since) wrong_since = now;
  return now - *wrong_since >= kAfter && !std::exchange(told, true);
}

std::vector<volume::Notice> Announcements::step(const NodeFacts& facts, time_point now) {
  std::vector<volume::Notice> news;
  std::string why;
  for (const auto& reason : judge(facts).not_ready()) why += (why.empty() ? "" : "; ") + reason;
  if (not_ready_.step(!why.empty(), now)) {
    if (why.empty())
      news.push_back({"AgentReady", false, "corbd can stage volumes on this node again."});
    else
      news.push_back({"AgentNotReady", true,
                      "corbd cannot stage volumes on this node: " + why +
                          ". Staged volumes are served. See `corbd status` on the node."});
  }
  const auto& refused = facts.metrics.refused;
  if (no_metrics_.step(!refused.empty(), now)) {
    if (refused.empty())
      news.push_back({"MetricsServed", false, "The metrics of corbd can be read on this node again."});
    else
      news.push_back({"MetricsNotServed", true,
                      "The metrics of corbd cannot be read on this node: " + refused +
                          ". The agent tries again. Volumes are served."});
  }
  return news;
}

NodeHealth judge(const NodeFacts& facts) {
  NodeHealth health;
  auto& all = health.components;
  all.push_back(agent_itself(facts));
  all.push_back(needed("csi-socket", facts.csi, "answers"));
  for (const auto& [kind, driver] : facts.drivers)
    all.push_back(needed(std::string(device::traits(kind).name), driver, "the kernel's driver is there"));
  all.push_back(needed("state-dir", facts.state_dir, "can be written"));
  all.push_back(kubelet(facts.registration));
  all.push_back(outsider("api-server", facts.api_server,
                         "a volume whose proof only the API server has waits, and people see no Events"));
  all.push_back(outsider("d-bus", facts.system_bus,
                         "the agent does not see that the node shuts down, and leaves before its volumes' users"));
  if (!facts.own_node)
    all.push_back(warning("node", facts.own_node.error().text +
                                      ". Meanwhile no VolumeAttachment proves that a volume is this node's, and "
                                      "Events about the node cannot be shown"));
  if (!facts.startup_taint.empty())
    all.push_back(
        warning("startup-taint", "still on this node, so no pod without a toleration comes: " + facts.startup_taint));
  if (!facts.metrics.refused.empty()) all.push_back(metrics(facts.metrics));
  all.push_back(keeper(facts.keeper));
  all.push_back(volumes_by_state(facts));
  if (facts.capacity.volumes > 0) all.push_back(capacity(facts));
  for (const auto& [kind, count] : facts.unclaimed) all.push_back(unclaimed(device::traits(kind), count));
  for (const auto& [id, of] : facts.clusters) all.push_back(cluster(id, of));
  all.push_back(helpers(facts.hanging));
  return health;
}

}  // namespace corbd::ops
