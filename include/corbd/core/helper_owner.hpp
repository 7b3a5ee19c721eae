// Names the owner on whose behalf a helper process works.
#pragma once

#include <string>

namespace corbd {

struct HelperOwner {
  HelperOwner(std::string file = {}, std::string of = {}) : busy_file(std::move(file)), whose(std::move(of)) {}
  HelperOwner(const char* file) : busy_file(file) {}
  std::string busy_file;  ///< if not empty: the helper holds flock(LOCK_EX) on this file from before the work until
                          ///< after it, so that the next incarnation sees work that outlived us
  std::string whose;      ///< its cause of waiting, "cluster lab": requests of one take no helper from another's
};

}  // namespace corbd
