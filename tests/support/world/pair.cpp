// The common time of two nodes, and the rules for both together.
#include "support/world/pair.hpp"

#include "support/world/ports.hpp"

namespace corbd::test {
namespace {

task<> asking(World& node, std::string id, plan::Wish wish, Until until, Pair::Answer answer) {
  *answer = co_await node.agent.shell().want(std::move(id), std::move(wish), until);
}

}  // namespace

void Pair::start(World& node) {
  if (node.agent.running()) return;
  node.trace("an agent starts");
  if (node.agent.try_to_start(true)) return;
  node.trace("it ends at once");
  const auto by_keeper = node.agent.die();
  node.loop().outside_in(by_keeper.value_or(std::chrono::seconds(1)), [&node] { start(node); });
}

void Pair::step(time_point limit) {
  loop_a.step(limit);
  for (World* node : serving)
    if (node != nullptr) live_on(*node);
  look_at_rules();
}

void Pair::advance(duration by) {
  for (const auto end = now() + by; now() < end;) step(end);
}

void Pair::live_on(World& node) {
  if (!node.loop().crashed() || !node.agent.running()) return;
  const auto by_keeper = node.agent.die();
  node.loop().outside_in(by_keeper.value_or(comes_back_in), [&node] { start(node); });
}

Pair::Answer Pair::ask(World& node, const std::string& id, plan::Wish wish, duration within) {
  auto answer = std::make_shared<std::optional<result<>>>();
  if (node.agent.running() && !node.loop().crashed())
    asio::co_spawn(node.loop().io, asking(node, id, std::move(wish), {now() + within}, answer), asio::detached);
  else
    *answer = Error{errc::unavailable, "no agent runs"};
  return answer;
}

result<> Pair::want(World& node, const std::string& id, plan::Wish wish, duration within) {
  const int life = node.agent.life();
  const Answer answer = ask(node, id, std::move(wish), within);
  while (!*answer && node.agent.lives(life)) step(now() + std::chrono::seconds(1));
  if (!*answer) return Error{errc::unavailable, "the agent died"};
  return **answer;
}

void Pair::look_at_rules() {
  std::map<std::string, std::string> writers;
  for (World* node : {&a, &b})
    for (const auto& [serial, link] : node->kernel.links) {
      const auto* opened = link->opened();
      if (link->state() != device::Link::State::serving || !link->assigned || opened == nullptr ||
          opened->read_only() || cluster.refuses(opened->client()))
        continue;
      if (const auto [place, first] = writers.emplace(link->image_id, opened->client()); !first)
        node->broke(opened->client() + " and " + place->second +
                    " serve and may write to one image: " + link->image_id);
      const auto* image = cluster.by_id(link->image_id);
      if (image != nullptr && !cluster.may_write(*image, opened->client()))
        node->broke("a live server has not the lock of its image: " + link->image_id);
    }
}

std::vector<std::string> Pair::broken_rules() const {
  auto all = a.broken_rules;
  all.insert(all.end(), b.broken_rules.begin(), b.broken_rules.end());
  return all;
}

void move_volumes(World& from, World& to, const std::string& uid) {
  from.trace("the volumes of " + from.name + " move to " + to.name);
  from.attachment = {plan::Attachment::State::away, "", "it is attached to " + to.name};
  from.moved_away = from.loop().clock.now();
  to.attachment = {plan::Attachment::State::here, uid, ""};
  to.moved_away.reset();
}

}  // namespace corbd::test
