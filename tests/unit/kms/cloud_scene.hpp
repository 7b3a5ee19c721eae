// A volume whose KMS gives the answers that a test wrote down, in that order.
#pragma once

#include <deque>

#include "fake_transport.hpp"

namespace corbd::test {

struct CloudScene {
  CloudScene() {
    ask.kms_id = "mine";
    ask.owner.volume_id = "volume";
    transport.server = [this](const FakeTransport::Request&) { return next<http::Reply>(answers); };
    transport.frames = [this](const http::Peer& peer, const std::string& request) {
      framed.emplace_back(peer, request);
      return next<std::string>(frames);
    };
  }
  CloudScene(const CloudScene&) = delete;
  CloudScene& operator=(const CloudScene&) = delete;

  void answer(unsigned status, std::string body) { answers.push_back(FakeTransport::reply(status, std::move(body))); }

  Loop loop;
  FakeTransport transport;
  kms::KeyCall ask;
  std::deque<http::Reply> answers;
  std::deque<std::string> frames;
  std::vector<std::pair<http::Peer, std::string>> framed;  ///< what was asked in frames

 private:
  template <class T>
  static result<T> next(std::deque<T>& from) {
    if (from.empty()) return Error{errc::unavailable, "it refused the connection"};
    T first = std::move(from.front());
    from.pop_front();
    return first;
  }
};

}  // namespace corbd::test
