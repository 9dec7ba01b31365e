// The two sides of a filter of this module, as `module.cc` calls them for Envoy.
#pragma once

#include <memory>
#include <string_view>

#include "module_abi.h"

namespace inferplane {

inline abi::Bytes bytes_of(std::string_view text) { return {text.data(), text.size()}; }

// One request. Used by one thread at a time.
class Filter {
 public:
  virtual ~Filter() = default;
  virtual abi::HeadersStatus request_headers(void* envoy, bool end) = 0;
  virtual abi::BodyStatus request_body(void*, bool) { return abi::kBodyContinue; }
  virtual void response_headers(void*) {}
  // The last of the answer is about to leave: nothing of it has reached the client yet.
  virtual void response_ends() {}
};

// One configuration of a filter. Used by many threads at once.
class FilterConfig {
 public:
  virtual ~FilterConfig() = default;
  virtual std::unique_ptr<Filter> make() const = 0;
};

// Each is null if the text is no configuration of that filter; `envoy` is Envoy's configuration.
std::unique_ptr<FilterConfig> endpoint_config(std::string_view text);
std::unique_ptr<FilterConfig> limit_config(void* envoy, std::string_view text);

}  // namespace inferplane
