// A pool of helper processes, and work that lasts until a test lets it end.
#pragma once

#include <fcntl.h>
#include <sys/file.h>

#include <boost/json/object.hpp>
#include <csignal>
#include <fstream>

#include "corbd/core/fd.hpp"
#include "corbd/core/helper_pool.hpp"
#include "support/folder.hpp"
#include "support/helpers.hpp"
#include "support/places.hpp"

namespace corbd::test {

namespace json = boost::json;
using Reply = result<json::object>;

struct Pool {
  explicit Pool(std::size_t max_helpers = 4)
      : pool(loop.control(), loop.clock, helper_child(helper_child_program(), max_helpers)) {}

  Started<Reply> start(json::object body, std::string busy_file = "", Until until = {}, std::string whose = "") {
    HelperRequest request;
    request.what = "work on a";
    request.body = std::move(body);
    request.owner = {std::move(busy_file), std::move(whose)};
    return Started<Reply>(loop.io, pool.call(std::move(request), until));
  }
  Reply call(json::object body, const std::string& whose = "") { return start(std::move(body), "", {}, whose).get(); }
  int pid() { return static_cast<int>(call({{"op", "test_echo"}, {"value", 1}}).value().at("pid").as_int64()); }

  // A request that lasts until open(name).
  Started<Reply> hold(const std::string& name, const std::string& busy_file = "", Until until = {},
                      const char* op = "test_hold", const std::string& whose = "") {
    return start(
        {{"op", op}, {"started", folder.path() + "/" + name + ".started"}, {"gate", folder.path() + "/" + name}},
        busy_file, until, whose);
  }
  bool has_started(const std::string& name) { return std::filesystem::exists(folder.path() + "/" + name + ".started"); }
  bool starts(const std::string& name) {
    return eventually(loop.io, [&] { return has_started(name); });
  }
  int pid_of(const std::string& name) {
    int pid = 0;
    std::ifstream(folder.path() + "/" + name + ".started") >> pid;
    return pid;
  }
  void open(const std::string& name) { std::ofstream(folder.path() + "/" + name) << "open"; }

  Folder folder;
  Loop loop;
  HelperPool pool;
};

inline bool is_locked(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

inline bool is_running(int pid) { return ::kill(pid, 0) == 0; }

}  // namespace corbd::test
