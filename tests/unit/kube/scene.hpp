// The API client against a scripted server.
#pragma once

#include "support/api_client.hpp"
#include "support/api_server.hpp"

namespace corbd::test {

inline const kube::Resource kThings{"/api/v1/things", "things"};

/// The server's threads are real, and so is the client's time.
struct ApiScene : ApiClient {
  explicit ApiScene(ApiServer::Script script, ApiServer::Tls tls = ApiServer::Tls::none, http::Timing timing = {})
      : ApiClient({}, timing), server(std::move(script), tls) {
    access = server.access();
  }
  auto get(const std::string& name = "one", Until until = {}) { return ApiClient::get(kThings, name, until); }
  auto watch(const std::string& version = "7", bool initial = false) {
    return ApiClient::watch(kThings, "one", version, std::chrono::seconds(300), initial);
  }
  ApiServer server;
};

/// The object that is asked for, by its name in the path.
inline std::string asked_for(const ApiServer::Request& request) {
  const std::string path = request.target.substr(0, request.target.find('?'));
  return R"({"metadata":{"name":")" + path.substr(path.rfind('/') + 1) + "\"}}";
}

inline void thing(const ApiServer::Request&, ApiServer::Peer& peer) {
  peer.answer(200, R"({"metadata":{"name":"one"}})");
}

inline ApiServer::Script always(unsigned status, std::string body, std::string headers = {}) {
  return [=](const ApiServer::Request&, ApiServer::Peer& peer) { peer.answer(status, body, headers); };
}

/// Answers a watch with a body in these pieces.
inline ApiServer::Script pieces(std::vector<std::string> all) {
  return [all = std::move(all)](const ApiServer::Request&, ApiServer::Peer& peer) {
    peer.begin();
    for (const auto& one : all) peer.piece(one);
    peer.end();
  };
}

inline std::string event(const std::string& type, const std::string& version) {
  return R"({"type":")" + type + R"(","object":{"kind":"Thing","metadata":{"name":"one","resourceVersion":")" +
         version + "\"}}}\n";
}

}  // namespace corbd::test
