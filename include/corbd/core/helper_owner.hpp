// Names the owner of a helper process: for whom it works.
#pragma once

#include <string>

namespace corbd {

struct HelperOwner {
  HelperOwner(std::string file = {}, std::string of = {}) : busy_file(std::move(file)), whose(std::move(of)) {}
  HelperOwner(const char* file) : busy_file(file) {}
  std::string busy_file;  ///< if not empty: the helper holds flock(LOCK_EX) on it from before the work until after it,
                          ///< so that the next incarnation sees work that outlived us
  std::string whose;      ///< what may make it wait, "cluster lab": work of one takes no helper from another's
};

}  // namespace corbd
