#include "story.hpp"

#include <algorithm>
#include <stdexcept>

namespace corbd::search {
namespace {

/// With all that may happen.
constexpr Setting setting_of(bool second_node) {
  return {.name = "story",
          .what = "",
          .second_node = second_node,
          .handover = true,
          .keeper = true,
          .tool = true,
          .rescue = true,
          .by_force = true,
          .cuts = true,
          .moves = true,
          .taints = true,
          .disturbances = 100,
          .writes = 100};
}

}  // namespace

Story::Story(bool second_node)
    : setting_(setting_of(second_node)), planner_({.takes_tainted = true}), moves_(setting_, planner_) {
  now = fresh_world(setting_);
}

void Story::happens(std::string_view what, int node) {
  const auto& all = moves_.of(now);
  const auto is_it = [&](const Move& move) { return move.what == what && (node < 0 || move.node == node); };
  const auto found = std::ranges::find_if(all, is_it);
  if (found == all.end()) throw std::runtime_error("it cannot happen: " + std::string(what) + "; now " + text(now));
  if (*found->broken != 0) throw std::runtime_error(found->broken);
  now = found->next;
}

/// An agent's own moves come first.
bool Story::step(int node, std::string_view& made) {
  const Node& of = now.nodes.at(node);
  if (of.agent.op == Process::idle) return false;
  if (of.agent.op != Process::leave && of.agent.phase == Process::deciding) {
    const Answer& answer = planner_.ask(node, of, of.agent);
    if (answer.kind != Answer::step) outcome = answer.code;
  }
  const auto& all = moves_.of(now);
  const auto is_its = [&](const Move& move) { return move.node == node && !move.of_client && move.is_free; };
  const auto found = std::ranges::find_if(all, is_its);
  if (found == all.end()) throw std::runtime_error("its agent cannot go on; now " + text(now));
  if (*found->broken != 0) throw std::runtime_error(found->broken);
  made = found->what;
  now = found->next;
  return true;
}

void Story::ends(int node) {
  std::string_view made;
  while (step(node, made)) continue;
}

void Story::ends_with(std::string_view what, int node) {
  for (std::string_view made; made != what;)
    if (!step(node, made)) throw std::runtime_error("its agent did not come to: " + std::string(what));
}

void Story::stage(int node) {
  happens("kubelet stages", node);
  ends(node);
}
void Story::attach(int node) {
  happens("its agent heard of its attachment, and notes it", node);
  ends(node);
}
void Story::heal(int node) {
  happens("its agent heals", node);
  ends(node);
}
void Story::unstage(int node) {
  happens("kubelet unstages", node);
  ends(node);
}
void Story::kill_and_start(int node) {
  happens("its agent dies", node);
  happens("an agent starts", node);
}
void Story::hand_over(int node) {
  happens("its next agent begins, and has its records", node);
  happens("its predecessor leaves the lock to the next agent", node);
  happens("its predecessor gives its link to the next agent", node);
  happens("its predecessor closes the image", node);
  happens("its predecessor has ended", node);
}

}  // namespace corbd::search
