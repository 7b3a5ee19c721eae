#include "support/world/node_reader.hpp"

namespace corbd::test {
namespace {

kube::ApiError failed(errc code, std::string why) {
  kube::ApiError failure;
  failure.error = {code, std::move(why)};
  return failure;
}

kube::Node object_of(const std::string& name, const FakeNode& node) {
  kube::Node object;
  object.name = name;
  object.uid = node.uid;
  object.addresses = {node.address};
  object.ready = node.ready;
  object.out_of_service = node.out_of_service;
  return object;
}

class Reader final : public orchestrator::NodeReader {
 public:
  explicit Reader(const FakeNodes& nodes) : nodes_(nodes) {}

  task<kube::answer<kube::Node>> node(std::string name, Until) override {
    if (!answers()) co_return failed(errc::unavailable, "the API server does not answer");
    const auto place = nodes_.by_name.find(name);
    if (place == nodes_.by_name.end()) co_return failed(errc::not_found, "no node " + name);
    co_return object_of(name, place->second);
  }

  task<kube::answer<std::vector<kube::Node>>> nodes(Until) override {
    if (!answers() || !nodes_.lists) co_return failed(errc::unavailable, "too many requests");
    std::vector<kube::Node> all;
    for (const auto& [name, node] : nodes_.by_name) all.push_back(object_of(name, node));
    co_return all;
  }

  task<kube::answer<kube::VolumeAttachment>> attachment(std::string, std::string node, Until) override {
    if (!answers()) co_return failed(errc::unavailable, "the API server does not answer");
    const auto place = nodes_.by_name.find(node);
    if (place == nodes_.by_name.end() || !place->second.attached) co_return failed(errc::not_found, "not attached");
    co_return kube::VolumeAttachment();
  }

 private:
  bool answers() const { return nodes_.answers && !nodes_.silent; }
  const FakeNodes& nodes_;
};

}  // namespace

std::unique_ptr<orchestrator::NodeReader> read_nodes(const FakeNodes& nodes) { return std::make_unique<Reader>(nodes); }

}  // namespace corbd::test
