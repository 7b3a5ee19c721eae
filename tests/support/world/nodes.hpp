// What the API server knows of other nodes.
#pragma once

#include <map>
#include <string>

namespace corbd::test {

struct FakeNode {
  std::string address;  ///< "10.0.0.7"
  std::string uid = "1";
  bool ready = true, out_of_service = false;
  bool attached = false;  ///< every volume is, there
};

struct FakeNodes {
  std::map<std::string, FakeNode> by_name;
  bool answers = true;  ///< otherwise every question fails
  bool silent = false;  ///< the same, and so does every question for an attachment or a Secret
  bool lists = true;    ///< otherwise lists fail: too many requests, or no right to
};

}  // namespace corbd::test
