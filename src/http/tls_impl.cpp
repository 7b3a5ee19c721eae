// The one place where Asio's TLS is compiled.
#include <boost/asio/ssl/impl/src.hpp>
