#include "note.hpp"

namespace corbd::plan {
namespace {

/// Returns "10.0.0.1" of "10.0.0.1:0/123456789", "fd00::1" of "[fd00::1]:0/123456789".
std::string bare_host(std::string_view address) {
  std::string_view host = image::host_of(address);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return std::string(host);
}

}  // namespace

std::optional<Step> note_node(const Situation& view) {
  const Record& record = *view.record;
  const auto& facts = view.seen.facts;
  if (!record.provisioned || facts.note_refused || !view.seen.image_open || view.seen.image_closing ||
      view.seen.tombstone)
    return std::nullopt;
  const Note wanted{record.user, view.policy.fencing ? bare_host(view.seen.client) : ""};
  if ((facts.noted ? facts.noted : record.note) == wanted) return std::nullopt;
  return step::WriteNote{wanted};
}

std::optional<Step> renew_note(const Situation& view) {
  if (auto step = note_node(view)) return step;
  const auto& noted = view.seen.facts.noted;
  if (!noted || view.record->note == noted) return std::nullopt;
  step::WriteRecord step{*view.record};
  step.record.note = noted;
  step.may_fail = true;
  return step;
}

}  // namespace corbd::plan
