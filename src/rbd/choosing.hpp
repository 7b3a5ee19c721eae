// Chooses the connection that the next caller of an access gets.
#pragma once

#include <cstddef>
#include <memory>

#include "corbd/core/clock.hpp"

namespace corbd::rbd {

struct Connection;
struct Group;

/// room_for_image: a connection that has room. monitors: any living one, even if the cluster has fenced this node.
enum class Need { monitors, any, room_for_image };

struct Limits {
  std::size_t connections, images_per_connection;
};

/// Returns the fullest one that has room, so that the others can become empty and close. If none has room and no more
/// may be made, returns the emptiest one. Those that answer go before the others. Null: another one is to be made.
std::shared_ptr<Connection> choose(const Group& group, Need need, Limits limits);

/// Whether the caller is to wait for another connection, because calls on all have no answer. In an outage it does no
/// better, so one is made a minute, and two beyond the limit.
bool wants_further(const Group& group, Need need, Limits limits, time_point now);

}  // namespace corbd::rbd
