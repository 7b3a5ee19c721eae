// The helper's operations of this room, one function each, and their names on the wire.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "corbd/manager/node.hpp"

namespace corbd::manager {

inline constexpr std::string_view kLook = "manager.look", kUsers = "manager.users", kMakeFolder = "manager.make_folder",
                                  kPutBack = "manager.put_back", kRemoveFolder = "manager.remove_folder",
                                  kResolve = "manager.resolve", kRead = "manager.read";

Sight sight_from_json(const boost::json::object& reply);

namespace ops {

/// Of a path where nothing is mounted.
result<Sight> look(const std::string& path);
/// `proc`: where /proc is. At most ten, and the last then says how many more.
std::vector<std::string> users(const std::string& target, const std::string& proc = "/proc");
result<> make_folder(const std::string& path, unsigned mode);
result<> put_back(const std::string& path, const Before& before);
result<> remove_folder(const std::string& path, const std::string& root);
result<std::string> resolve(const std::string& path);
/// Its first block, past the page cache. io: it gives errors, or it is gone.
result<> read_device(const std::string& path);

}  // namespace ops
}  // namespace corbd::manager
