// One history of a cell: what was there before, the stage, what happens then, and the end, on the fakes.
#pragma once

#include "cell.hpp"

namespace corbd::matrix {

enum class Event {
  stage,     ///< alone, of a cell that is refused
  requests,  ///< repeated stages, the same and others, a second pod, expansion, rotation, reclaim, new secrets
  kill,      ///< of the agent, under writers
  handover,  ///< to the next agent
  reboot,    ///< of the node
  cut_off,   ///< the node reaches nobody for a minute
  fenced,    ///< the cluster refuses the node for two minutes
  unstaged_by_another  ///< ceph-csi's plugin, or a person, takes the stage down
};
inline constexpr std::array kEvents{Event::requests, Event::kill,   Event::handover,           Event::reboot,
                                    Event::cut_off,  Event::fenced, Event::unstaged_by_another};
std::string_view name(Event event);
/// What nobody's agent is to survive does not happen: the kernel's client never forgets that it was fenced, and what
/// rbd-nbd serves is not ours to heal.
bool can_happen(const Cell& cell, Event event);

/// What went otherwise than the table says, or than it must.
std::vector<std::string> play(const Cell& cell, Event event);

}  // namespace corbd::matrix
