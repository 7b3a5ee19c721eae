// Listening sockets that the predecessor passed on.
#pragma once

#include <string>
#include <vector>

#include "corbd/core/fd.hpp"

namespace corbd::rpc {

/// The sockets of a predecessor until their servers take them. Control thread only.
class Inherited {
 public:
  void add(Fd socket);
  /// Returns the socket that is bound there (unix:///path/to.sock). Invalid: there is none.
  Fd take(const std::string& endpoint);
  /// Closes the sockets that nobody has taken, and removes their paths, because nobody answers there.
  void end_rest();

 private:
  struct One {
    std::string path;
    Fd socket;
  };
  std::vector<One> all_;
};

}  // namespace corbd::rpc
