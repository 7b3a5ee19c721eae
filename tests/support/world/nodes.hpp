// The API server's knowledge of other nodes.
#pragma once

#include <map>
#include <string>

namespace corbd::test {

struct FakeNode {
  std::string address;  ///< "10.0.0.7"
  std::string uid = "1";
  bool ready = true, out_of_service = false;
  bool attached = false;  ///< every volume is attached there
};

struct FakeNodes {
  std::map<std::string, FakeNode> by_name;
  bool answers = true;   ///< false: every question fails
  bool silent = false;   ///< the same, also for questions about an attachment or a Secret
  bool strange = false;  ///< while silent: somebody else answers, such as a proxy with its own 404
  bool lists = true;     ///< false: lists fail, because of too many requests, or of a missing right
};

}  // namespace corbd::test
