// Asks a cluster's monitors. A call blocks until they answer, or until librados gives up.
#pragma once

#include <rados/librados.h>

#include <boost/json/object.hpp>
#include <string>

namespace corbd::rbd {

struct MonAnswer {
  int code = 0;
  std::string output;
  std::string text;  ///< for people
};

MonAnswer ask_monitors(rados_t cluster, const boost::json::object& words);

}  // namespace corbd::rbd
