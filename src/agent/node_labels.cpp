#include "node_labels.hpp"

#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "corbd/core/file.hpp"
#include "corbd/core/log.hpp"

namespace corbd::agent {
namespace {

namespace json = boost::json;

constexpr std::size_t kMostLabelBytes = 1 << 20;

std::string label_file(const Options& options) { return options.runtime_dir + "/node-labels.json"; }

std::string labels_to_json(const std::string& node, const csi::Labels& labels) {
  json::object of;
  for (const auto& [label, value] : labels) of[label] = value;
  return json::serialize(json::object{{"node", node}, {"labels", std::move(of)}}) + "\n";
}

/// Labels are only a hint: without them images are opened as if the node had none.
csi::Labels read_labels(const std::string& path, const std::string& node) {
  const auto text = read_file(path, kMostLabelBytes);
  boost::system::error_code failed;
  const auto parsed = json::parse(text ? *text : std::string(), failed);
  if (failed || !parsed.is_object()) return {};
  const json::value *of = parsed.get_object().if_contains("node"), *all = parsed.get_object().if_contains("labels");
  if (of == nullptr || *of != json::value(node) || all == nullptr || !all->is_object()) return {};
  csi::Labels labels;
  for (const auto& [label, value] : all->get_object())
    if (value.is_string()) labels[std::string(label)] = std::string(value.get_string());
  return labels;
}

}  // namespace

NodeLabels::NodeLabels(const Options& options, kube::OwnNode& node, BlockingPool& files)
    : options_(options),
      node_(node),
      files_(files),
      file_(std::make_shared<LatestFile>(label_file(options))),
      remembered_(read_labels(label_file(options), options.nodeid)) {
  node_.on_labels([this] { remember(); });
}

void NodeLabels::remember() {
  const auto known = node_.labels();
  if (!known || *known == remembered_) return;
  remembered_ = *known;
  file_->set(labels_to_json(options_.nodeid, remembered_));
  files_.post([file = file_] {
    if (const auto written = file->write(); !written)
      log::warning("node.labels_not_kept",
                   {{"error", written.error().text}, {"effect", "after a crash reads may go to the primary OSD"}});
  });
}

void NodeLabels::want() {
  if (!options_.domainlabels.empty() || options_.read_affinity) static_cast<void>(labels());
}

result<csi::Labels> NodeLabels::labels() {
  if (by_hand()) return csi::parse_labels(options_.topology);
  node_.start();
  return node_.labels();
}

result<csi::Labels> NodeLabels::topology() {
  std::string wanted = options_.domainlabels;
  if (wanted.empty() && !by_hand()) return csi::Labels();
  const auto known = labels();
  if (!known) return known.error();
  if (wanted.empty())
    for (const auto& [label, value] : *known) wanted += (wanted.empty() ? "" : ",") + label;
  return csi::topology_of(options_.drivername, wanted, *known);
}

result<cephcsi::ReadPolicy> NodeLabels::read_policy(const rbd::ClusterEntry& cluster) {
  const bool by_labels = cluster.read_affinity && !cluster.balance_reads && options_.crush_location.empty();
  auto place = by_labels ? labels() : result<csi::Labels>(csi::Labels());
  if (!place && place.error().code == errc::unavailable && !remembered_.empty()) place = remembered_;
  return cephcsi::read_policy({.of_cluster = cluster.read_affinity,
                               .balance = cluster.balance_reads,
                               .cluster_labels = cluster.crush_labels,
                               .of_node = options_.read_affinity,
                               .node_labels = cephcsi::label_names(options_.crush_labels),
                               .location = options_.crush_location},
                              place);
}

}  // namespace corbd::agent
