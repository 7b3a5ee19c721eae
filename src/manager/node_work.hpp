// The operations of a helper for this room, and the functions that carry them out.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "corbd/core/helper_operation.hpp"
#include "corbd/manager/node.hpp"

namespace corbd::manager {

namespace operation {

using fields::required;

struct Look {
  using Reply = PathState;
  static constexpr std::string_view name = "manager.look";
  static constexpr std::chrono::seconds patience{20};
  std::string path;
  static constexpr std::tuple fields{required("path", &Look::path)};
  std::string what() const { return "look at " + path; }
};
struct FindUsers {
  using Reply = std::vector<std::string>;
  static constexpr std::string_view name = "manager.users";
  static constexpr std::chrono::seconds patience{20};
  std::string path;
  static constexpr std::tuple fields{required("path", &FindUsers::path)};
  std::string what() const { return "look who uses " + path; }
};
struct MakeFolder {
  using Reply = void;
  static constexpr std::string_view name = "manager.make_folder";
  static constexpr std::chrono::seconds patience{20};
  std::string path;
  unsigned mode = 0;
  static constexpr std::tuple fields{required("path", &MakeFolder::path), required("mode", &MakeFolder::mode)};
  std::string what() const { return "make " + path; }
};
struct PutBack {
  using Reply = void;
  static constexpr std::string_view name = "manager.put_back";
  static constexpr std::chrono::seconds patience{20};
  std::string path;
  Before before;
  static constexpr std::tuple fields{required("path", &PutBack::path), required("before", &PutBack::before)};
  std::string what() const { return "put back " + path; }
};
struct RemoveFolder {
  using Reply = void;
  static constexpr std::string_view name = "manager.remove_folder";
  static constexpr std::chrono::seconds patience{20};
  std::string path;
  std::string root;
  static constexpr std::tuple fields{required("path", &RemoveFolder::path), required("root", &RemoveFolder::root)};
  std::string what() const { return "remove the folder " + path; }
};
struct Resolve {
  using Reply = std::string;
  static constexpr std::string_view name = "manager.resolve";
  static constexpr std::chrono::seconds patience{20};
  std::string path;
  static constexpr std::tuple fields{required("path", &Resolve::path)};
  std::string what() const { return "resolve " + path; }
};
struct ReadDevice {
  using Reply = void;
  static constexpr std::string_view name = "manager.read";
  static constexpr std::chrono::seconds patience{5};
  std::string path;
  static constexpr std::tuple fields{required("path", &ReadDevice::path)};
  std::string what() const { return "read " + path; }
};

}  // namespace operation

namespace ops {

/// Looks at a path where nothing is mounted.
result<PathState> look(const std::string& path);
/// `proc`: path of /proc. Returns ten at most, the last of which says how many more there are.
std::vector<std::string> users(const std::string& target, const std::string& proc = "/proc");
result<> make_folder(const std::string& path, unsigned mode);
result<> put_back(const std::string& path, const Before& before);
result<> remove_folder(const std::string& path, const std::string& root);
result<std::string> resolve(const std::string& path);
/// Reads the device's first block, past the page cache. io: it gives errors, or it is gone.
result<> read_device(const std::string& path);

}  // namespace ops
}  // namespace corbd::manager

template <>
struct corbd::fields::Written<corbd::manager::PathState::At> : corbd::helper::AsNumber<corbd::manager::PathState::At> {
};
