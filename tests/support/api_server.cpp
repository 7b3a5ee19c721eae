#include "support/api_server.hpp"
#include "support/places.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <list>
#include <stdexcept>

#include "corbd/core/file.hpp"

namespace corbd::test {
namespace {

namespace http = boost::beast::http;
namespace ssl = asio::ssl;
using tcp = asio::ip::tcp;
using boost::system::error_code;

/// A request that the script does not answer ends with its connection.
struct Gone : std::runtime_error {
  Gone() : std::runtime_error("the client is gone") {}
};

template <class Stream>
class Wire final : public ApiServer::Peer {
 public:
  Wire(Stream& stream, tcp::socket& socket) : stream_(stream), socket_(socket) {}
  void send(std::string_view bytes) override {
    error_code failed;
    asio::write(stream_, asio::buffer(bytes), failed);
    if (failed) throw Gone();
  }
  void hang() override {
    char byte = 0;
    error_code failed;
    while (!failed) stream_.read_some(asio::buffer(&byte, 1), failed);
    throw Gone();
  }
  void close() override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    throw Gone();
  }

 private:
  Stream& stream_;
  tcp::socket& socket_;
};

}  // namespace

void ApiServer::Peer::answer(unsigned status, std::string_view body, std::string_view headers) {
  send("HTTP/1.1 " + std::to_string(status) + " x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
       std::string(headers) + "\r\n" + std::string(body));
}
void ApiServer::Peer::absent(const Request& request) {
  const std::string path = request.target.substr(0, request.target.find('?'));
  const auto slash = path.rfind('/');
  const std::string name = path.substr(slash + 1), folder = path.substr(0, slash);
  const std::string kind = folder.substr(folder.rfind('/') + 1);
  answer(404, R"({"kind":"Status","status":"Failure","reason":"NotFound","message":")" + kind + " \\\"" + name +
                  R"(\" not found","details":{"name":")" + name + R"(","kind":")" + kind + R"("},"code":404})");
}
void ApiServer::Peer::object(const Request& request, unsigned status, std::string body, std::string_view headers) {
  if (status == 404) return absent(request);
  if (status != 200) return answer(status, body, headers);
  const std::string path = request.target.substr(0, request.target.find('?'));
  const std::string name = R"("name":")" + path.substr(path.rfind('/') + 1) + "\"";
  const std::string_view metadata = R"("metadata":{)";
  if (body.find(R"("metadata":{"name":)") != std::string::npos) return answer(200, body, headers);
  if (const auto place = body.find(metadata); place != std::string::npos)
    body.insert(place + metadata.size(), name + ",");
  else
    body.insert(1, "\"metadata\":{" + name + (body == "{}" ? "}" : "},"));
  answer(200, body, headers);
}
void ApiServer::Peer::begin(unsigned status) {
  send("HTTP/1.1 " + std::to_string(status) + " x\r\nTransfer-Encoding: chunked\r\n\r\n");
}
void ApiServer::Peer::piece(std::string_view bytes) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  send(size + std::string(bytes) + "\r\n");
}
void ApiServer::Peer::end() { send("0\r\n\r\n"); }

struct ApiServer::Impl {
  Impl(Script what, Tls how)
      : script(std::move(what)),
        tls(how),
        context(ssl::context::tls_server),
        acceptor(io, {asio::ip::address_v4::loopback(), 0}) {
    if (tls == Tls::none) return;
    if (tls == Tls::finite_field) {
      context.use_certificate_chain(asio::buffer(pki("rsa.pem")));
      context.use_private_key(asio::buffer(pki("rsa.pem")), ssl::context::pem);
      context.set_options(ssl::context::no_tlsv1_3);
      ::SSL_CTX_set_dh_auto(context.native_handle(), 1);
      ::SSL_CTX_set_cipher_list(context.native_handle(), "DHE-RSA-AES128-GCM-SHA256");
      return;
    }
    const std::string name = tls == Tls::wrong_host ? "wrong-host" : "server";
    context.use_certificate_chain(asio::buffer(pki(name + ".pem")));
    context.use_private_key(asio::buffer(pki(name + ".key")), ssl::context::pem);
    if (tls == Tls::old) context.set_options(ssl::context::no_tlsv1_3);
    if (tls != Tls::asks_for_certificate) return;
    context.add_certificate_authority(asio::buffer(pki("ca.pem")));
    context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  }

  void accept() {
    for (int number = 1;; ++number) {
      error_code failed;
      tcp::socket socket(io);
      acceptor.accept(socket, failed);
      const std::lock_guard lock(mutex);
      if (failed || stopping) return;
      auto& kept = sockets.emplace_back(std::move(socket));
      threads.emplace_back([this, &kept, number] { serve(kept, number); });
    }
  }

  void serve(tcp::socket& socket, int number) {
    try {
      if (tls == Tls::none) return converse(socket, socket, number);
      ssl::stream<tcp::socket&> stream(socket, context);
      error_code refused;
      stream.handshake(ssl::stream_base::server, refused);
      if (refused) return end(socket);
      converse(stream, socket, number);
    } catch (const std::exception&) {
    }
    error_code ignored;
    socket.shutdown(tcp::socket::shutdown_both, ignored);
  }

  /// Servers do so: who sends more hears that the connection is reset.
  void end(tcp::socket& socket) {
    const std::lock_guard lock(mutex);
    error_code ignored;
    socket.close(ignored);
  }

  template <class Stream>
  void converse(Stream& stream, tcp::socket& socket, int number) {
    boost::beast::flat_buffer buffer;
    for (;;) {
      http::request<http::string_body> read;
      http::read(stream, buffer, read);
      const Request request{std::string(read.method_string()), std::string(read.target()),
                            std::string(read[http::field::authorization]), read.body(), number};
      {
        const std::lock_guard lock(mutex);
        all.push_back(request);
      }
      Wire<Stream> peer(stream, socket);
      script(request, peer);
    }
  }

  const Script script;
  const Tls tls;
  asio::io_context io;
  ssl::context context;
  tcp::acceptor acceptor;
  std::mutex mutex;
  bool stopping = false;
  std::vector<Request> all;
  std::list<tcp::socket> sockets;
  std::list<std::thread> threads;
  std::thread accepting;
};

ApiServer::ApiServer(Script script, Tls tls) : impl_(std::make_unique<Impl>(std::move(script), tls)) {
  impl_->accepting = std::thread([this] { impl_->accept(); });
}

ApiServer::~ApiServer() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    error_code ignored;
    for (auto& socket : impl_->sockets) socket.shutdown(tcp::socket::shutdown_both, ignored);
  }
  // The thread waits in accept(), and a connection wakes it.
  tcp::socket wake(impl_->io);
  error_code ignored;
  wake.connect(impl_->acceptor.local_endpoint(), ignored);
  impl_->accepting.join();
  for (auto& thread : impl_->threads) thread.join();
}

std::uint16_t ApiServer::port() const { return impl_->acceptor.local_endpoint().port(); }

kube::Access ApiServer::access() const {
  kube::Access access;
  access.host = "127.0.0.1";
  access.port = port();
  access.tls = impl_->tls != Tls::none;
  if (access.tls) access.authorities = pki("ca.pem");
  return access;
}

std::vector<ApiServer::Request> ApiServer::requests() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->all;
}

std::string pki(const std::string& name) { return read_file(tests_folder() + "/support/pki/" + name, 1 << 20).value(); }

}  // namespace corbd::test
