// The one place where Asio's and Boost.JSON's implementations are compiled.
#include <boost/asio/impl/src.hpp>
#include <boost/json/src.hpp>
