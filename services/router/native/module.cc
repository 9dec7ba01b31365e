// The hooks by which Envoy calls this module's filters, told apart by the name that Envoy's configuration has for them.

#include <string_view>

#include "filter.h"
#include "module_abi.h"

#define HOOK extern "C" __attribute__((visibility("default")))

using inferplane::Filter;
using inferplane::FilterConfig;
using inferplane::abi::Bytes;

namespace {

// Envoy keeps what we gave it and gives it back.
Filter* filter_of(const void* ours) { return static_cast<Filter*>(const_cast<void*>(ours)); }

}  // namespace

HOOK const char* envoy_dynamic_module_on_program_init() { return "v0.2.0"; }  // that of Envoy 1.40

HOOK const void* envoy_dynamic_module_on_http_filter_config_new(void* envoy, Bytes name, Bytes config) {
  const std::string_view filter(name.data, name.size), text(config.data, config.size);
  // Null: Envoy refuses the configuration.
  if (filter == "endpoint") return inferplane::endpoint_config(text).release();
  if (filter == "limits") return inferplane::limit_config(envoy, text).release();
  return nullptr;
}

HOOK void envoy_dynamic_module_on_http_filter_config_destroy(const void* config) {
  delete static_cast<const FilterConfig*>(config);
}

HOOK const void* envoy_dynamic_module_on_http_filter_new(const void* config, void*) {
  return static_cast<const FilterConfig*>(config)->make().release();
}

// Once for each request, in every ending.
HOOK void envoy_dynamic_module_on_http_filter_destroy(const void* filter) { delete filter_of(filter); }

HOOK int envoy_dynamic_module_on_http_filter_request_headers(void* envoy, const void* filter, bool end) {
  return filter_of(filter)->request_headers(envoy, end);
}

HOOK int envoy_dynamic_module_on_http_filter_request_body(void* envoy, const void* filter, bool end) {
  return filter_of(filter)->request_body(envoy, end);
}

HOOK int envoy_dynamic_module_on_http_filter_response_headers(void* envoy, const void* filter, bool end) {
  filter_of(filter)->response_headers(envoy);
  if (end) filter_of(filter)->response_ends();
  return inferplane::abi::kHeadersContinue;
}

HOOK int envoy_dynamic_module_on_http_filter_response_body(void*, const void* filter, bool end) {
  if (end) filter_of(filter)->response_ends();
  return inferplane::abi::kBodyContinue;
}

HOOK int envoy_dynamic_module_on_http_filter_response_trailers(void*, const void* filter) {
  filter_of(filter)->response_ends();
  return 0;
}

// Hooks that a module must have, and in which there is nothing to do.
HOOK int envoy_dynamic_module_on_http_filter_request_trailers(void*, const void*) { return 0; }
HOOK void envoy_dynamic_module_on_http_filter_stream_complete(void*, const void*) {}
HOOK void envoy_dynamic_module_on_http_filter_http_callout_done() {}
HOOK void envoy_dynamic_module_on_http_filter_http_stream_headers() {}
HOOK void envoy_dynamic_module_on_http_filter_http_stream_data() {}
HOOK void envoy_dynamic_module_on_http_filter_http_stream_trailers() {}
HOOK void envoy_dynamic_module_on_http_filter_http_stream_complete() {}
HOOK void envoy_dynamic_module_on_http_filter_http_stream_reset() {}
HOOK void envoy_dynamic_module_on_http_filter_scheduled() {}
HOOK void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark() {}
HOOK void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark() {}
