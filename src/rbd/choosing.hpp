// Chooses the connection that the next caller of an access gets, and those that end because nobody calls.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "corbd/core/clock.hpp"

namespace corbd::rbd {

struct Connection;
struct Group;

/// monitors: a connection that only has to reach the monitors, so also one of a fenced node. any: not one of a fenced
/// node. room_for_image: the same, and it has room.
enum class Need { monitors, any, room_for_image };

struct Limits {
  std::size_t connections, images_per_connection;
};

/// Returns the fullest one that has room, so that the others can become empty and close. If none has room and no more
/// may be made, returns the emptiest one. Those that answer go before the others. Null: another one is to be made.
std::shared_ptr<Connection> choose(const Group& group, Need need, Limits limits);

/// Whether the caller is to wait for another connection, because all are silent. In an outage another one does not
/// help, so at most one a minute is made, and at most two beyond the limit.
bool needs_another(const Group& group, Need need, Limits limits, time_point now);

/// Whether the group has another connection for the next image that is as good as this one.
bool has_better(const Group& group, const Connection& than);

struct IdleConnections {
  std::vector<std::shared_ptr<Connection>> end;  ///< now
  bool end_later = false;                        ///< others will
};
/// Accesses come and go with their volumes, because each tenant may have a user of its own. So an access keeps its idle
/// connection for ten minutes. The one of each cluster that was used last stays, for a quick next stage.
IdleConnections judge_idle(const std::vector<std::shared_ptr<Group>>& groups, time_point now);

}  // namespace corbd::rbd
