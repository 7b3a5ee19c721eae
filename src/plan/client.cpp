#include "client.hpp"

#include "corbd/plan/outcome.hpp"

namespace corbd::plan {
namespace {

bool serves(const Situation& view) {
  return view.seen.link == Observation::Link::serving && view.seen.connected && !view.seen.tombstone;
}

/// Whether the volume has another user and key than its image's client, which the cluster has not refused.
bool has_other_user(const Situation& view) { return view.seen.other_credential && !view.seen.facts.other_refused; }

/// Finds out whether the cluster still accepts the user of a client that gets no answers and, if not, whether the
/// Secret has another one. Nothing: that is known. A client of a removed user gets neither answers nor errors once its
/// tickets have ended (docs/sources.md#rotated-keys).
std::optional<Step> look_at_users(const Situation& view) {
  const Facts& facts = view.seen.facts;
  if (!facts.user_refused) return look(Fact::client_user);
  if (!*facts.user_refused || has_other_user(view)) return std::nullopt;
  if (!facts.secret_asked) return look(Fact::stage_secret);
  if (view.seen.credential_untried) return Step(step::TryCredential{});
  return std::nullopt;
}

}  // namespace

std::optional<Decision> judge_silent_client(const Situation& view) {
  const Observation& seen = view.seen;
  if (!view.silent || !serves(view) || seen.client_given_up) return std::nullopt;
  if (!seen.facts.client_judged) {
    if (auto step = look_at_users(view)) return *step;
    const bool replaced = *seen.facts.user_refused && has_other_user(view) && !seen.client_needed;
    if (replaced || seen.facts.client_deaf) return Step(step::GiveUpClient{});
  }
  return seen.silent ? std::optional<Decision>(Done{}) : std::nullopt;
}

std::optional<Step> judge_closing_client(const Situation& view) {
  const Observation& seen = view.seen;
  const bool stuck = (seen.image_closing || seen.session_stuck) && seen.image_open && !seen.tombstone;
  const bool failed = view.record && view.record->failed;
  if (!stuck || failed || seen.client_given_up || seen.facts.client_judged) return std::nullopt;
  if (!seen.facts.user_refused) return look(Fact::client_user);
  if (!seen.facts.client_deaf && !seen.client_needed)
    if (auto step = look_at_users(view)) return step;
  const bool over = never_answered(
      {.refused = *seen.facts.user_refused, .deaf = seen.facts.client_deaf, .needed = seen.client_needed});
  return over ? std::optional<Step>(step::GiveUpClient{}) : std::nullopt;
}

bool never_answered(const ClosingClient& client) { return client.deaf || (client.refused && !client.needed); }

std::optional<Step> change_client(const Situation& view) {
  const Observation& seen = view.seen;
  const Record& record = *view.record;
  if (!serves(view) || !seen.other_credential || !seen.credential_kept || seen.facts.client_changed)
    return std::nullopt;
  const bool ours = !record.use.writes_alone() || seen.lock_held || seen.writer_marked;
  if (!ours || seen.silent || seen.image_cut_off || record.failed || record.adopting) return std::nullopt;
  if (!seen.facts.next_tried) return Step(step::OpenNext{});
  return seen.facts.next_refused ? std::nullopt : std::optional<Step>(step::ChangeClient{});
}

std::optional<Step> try_credential(const Situation& view) {
  const Observation& seen = view.seen;
  if (!seen.credential_untried) return std::nullopt;
  // The present client is left for one that has opened the image, and for nothing less.
  if (serves(view) && !seen.silent && !seen.facts.next_tried) return Step(step::OpenNext{});
  return Step(step::TryCredential{});
}

}  // namespace corbd::plan
