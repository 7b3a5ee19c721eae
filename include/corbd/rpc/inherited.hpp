// Listening sockets that the predecessor passed on.
#pragma once

#include <string>
#include <vector>

#include "corbd/core/fd.hpp"

namespace corbd::rpc {

class Inherited {
 public:
  void add(Fd socket);
  /// The one that is bound there (unix:///path/to.sock). Invalid: there is none.
  Fd take(const std::string& endpoint);
  /// What nobody has taken ends. Its path goes, because nobody answers there.
  void end_rest();

 private:
  struct One {
    std::string path;
    Fd socket;
  };
  std::vector<One> all_;
};

}  // namespace corbd::rpc
