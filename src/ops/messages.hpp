// Turns the agent's values into messages of the admin service. Pure.
#pragma once

#include <vector>

#include "corbd/heal/heal_queue.hpp"
#include "corbd/ops/node_health.hpp"
#include "corbd/v1/admin.pb.h"
#include "corbd/volume/volumes.hpp"

namespace corbd::ops {

v1::Volume to_message(const volume::Status& status, const heal::HealQueue& queue, time_point now);
v1::FsckResponse to_message(const volume::ManualCheck& check);
v1::Activity activity_of(const volume::Status& status, time_point now);
v1::Change to_message(const volume::Change& change);

/// Counts volumes by health, and clusters, in the order of their names.
void count(v1::GetStatusResponse& into, const NodeFacts& facts);
void add_health(v1::GetStatusResponse& into, const NodeHealth& health);
/// Whether it is mounted below a path of kubelet that names another driver.
bool of_another_driver(const volume::Unclaimed& device, const std::string& driver);
/// Adds both counts: of the devices that this agent could serve, and of the others.
void add_unclaimed(v1::GetStatusResponse& into, const NodeFacts& facts);
void add_stuck(v1::GetStatusResponse& into, const std::vector<Hanging>& hanging);

}  // namespace corbd::ops
