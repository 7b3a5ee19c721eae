// What a driver takes of its machine: by /proc, of its process and of all that it started.
#pragma once

#include <sys/types.h>

#include <boost/json/object.hpp>
#include <string>
#include <vector>

namespace corbd::bench {

struct Cost {
  int processes = 0, threads = 0, descriptors = 0;
  long rss_kib = 0, pss_kib = 0;
  double cpu_ms = 0;  ///< since they began, in steps of 10 ms; with that of children that have ended
};

/// Of these processes and their descendants, and of those whose command line contains `words`, unless that is empty.
/// A process that ends meanwhile does not count.
Cost cost_of(std::vector<pid_t> pids, const std::string& words = {});
boost::json::object json_of(const Cost& cost);

/// The process that listens on the unix socket. Throws what is wrong.
pid_t listener_of(const std::string& socket);

}  // namespace corbd::bench
