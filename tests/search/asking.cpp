#include "asking.hpp"

#include <unordered_map>

#include "corbd/core/overloaded.hpp"
#include "hash.hpp"
#include "values.hpp"

namespace corbd::search {
namespace {

bool names_action(const Error& error) {
  const auto says = [&](const char* words) { return error.text.find(words) != std::string::npos; };
  return says("`corbd ") || says("end its pods");
}

Answer small(const plan::Decision& decision, int node, const plan::Wish& wish, const plan::Facts& facts) {
  Answer answer;
  const auto* refusal = std::get_if<plan::Refusal>(&decision);
  answer.tells = plan::tells_of_ownership(wish, refusal ? result<>(refusal->error) : result<>(), facts);
  const auto step = [&](const plan::Step& next) {
    answer.kind = Answer::step;
    answer.which = next.index();
    answer.asks_cluster = plan::asks_cluster(next);
    if (const auto* look = std::get_if<plan::step::Look>(&next)) answer.fact = look->fact;
    if (const auto* write = std::get_if<plan::step::WriteRecord>(&next))
      answer.record = small_record(write->record, node);
    if (const auto* write = std::get_if<plan::step::WriteStash>(&next)) answer.stash = small_stash(write->stash);
    if (const auto* evict = std::get_if<plan::step::Evict>(&next))
      for (const auto& holder : evict->holders) answer.evicts |= bit(client_at(holder.address));
  };
  std::visit(Overloaded{[](const plan::Done&) {}, [&](const plan::Wait&) { answer.kind = Answer::wait; }, step,
                        [&](const plan::Refusal& refused) {
                          answer.kind = Answer::refused;
                          answer.code = refused.error.code;
                          answer.leaves = refused.leaves;
                          answer.names_action = names_action(refused.error);
                        }},
             decision);
  return answer;
}

/// All that an answer depends on.
struct Question {
  Record record;
  Stash stash;
  Device device;
  Process agent;
  std::uint8_t node = 0;
  std::uint8_t padding = 0;
};
static_assert(std::has_unique_object_representations_v<Question>);

}  // namespace

struct Planner::Known {
  std::unordered_map<Hash, Answer, Hash::Short> answers;
};

Planner::Planner(Settings settings) : settings_(settings), known_(std::make_unique<Known>()) {}
Planner::~Planner() = default;
std::size_t Planner::asked() const { return known_->answers.size(); }

plan::Decision Planner::decide(int node, const Node& of, const Process& agent) const {
  const plan::Wish wish = wish_of(agent);
  const auto seen = observation_of(of, agent, settings_.faults);
  const plan::Policy policy{.driver = "rbd.csi.ceph.com",
                            .node = "node-" + std::to_string(node + 1),
                            .fence_out_of_service = settings_.takes_tainted};
  const auto record = of.record.there ? std::optional(real_record(of.record, node)) : std::nullopt;
  return plan::decide(kVolume, record, wish, seen, policy);
}

const Answer& Planner::ask(int node, const Node& of, const Process& agent) {
  Question question{of.record, of.stash, of.device, agent, static_cast<std::uint8_t>(node), 0};
  question.device.stale = question.device.pending = 0;
  const auto [place, is_new] = known_->answers.try_emplace(hash_of(question));
  if (is_new) place->second = small(decide(node, of, agent), node, wish_of(agent), facts_of(of, agent));
  return place->second;
}

std::string text(const plan::Decision& decision) {
  static constexpr std::array kFactNames{
      "resolved",      "header",     "ownership",    "image_size", "probe",           "has_data",
      "format_marker", "filesystem", "unused",       "stash",      "served_by_other", "beside",
      "encryption",    "luks",       "first_key",    "keys",       "folder",          "attachment",
      "holders",       "io_limits",  "stage_secret", "client_user"};
  return std::visit(Overloaded{[](const plan::Done&) { return std::string("done"); },
                               [](const plan::Wait& wait) { return "wait: " + wait.why; },
                               [](const plan::Refusal& refused) { return "refused: " + refused.error.text; },
                               [](const plan::Step& next) {
                                 std::string said(plan::name(next));
                                 if (const auto* look = std::get_if<plan::step::Look>(&next))
                                   said += std::string(" ") + kFactNames.at(static_cast<std::size_t>(look->fact));
                                 return said;
                               }},
                    decision);
}

}  // namespace corbd::search
