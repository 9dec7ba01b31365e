// What this module uses of the ABI between Envoy and its dynamic modules (source/extensions/dynamic_modules/abi/abi.h in
// Envoy's repository). Of another version than its own Envoy warns, and goes on; what counts is that these hooks and
// callbacks are there, which `envoy --mode validate` and the tests of the edge show for the Envoy that is pinned.
#pragma once

#include <cstddef>
#include <cstdint>

namespace inferplane::abi {

// Bytes that Envoy owns, valid until the hook returns; or bytes of ours, copied by the callback. By value.
struct Bytes {
  const char* data;
  size_t size;
};

// A header of ours, copied by the callback.
struct Header {
  Bytes key;
  Bytes value;
};

enum HeaderType : int { kRequestHeader = 0, kResponseHeader = 2 };
enum BodyType : int { kReceivedRequestBody = 0, kBufferedRequestBody = 1 };
// Envoy's FilterHeadersStatus and FilterDataStatus, as far as they are used here.
enum HeadersStatus : int { kHeadersContinue = 0, kHeadersStop = 1 };
enum BodyStatus : int { kBodyContinue = 0, kBodyStopAndBuffer = 1 };

}  // namespace inferplane::abi

extern "C" {

using InferplaneBytes = inferplane::abi::Bytes;

bool envoy_dynamic_module_callback_http_get_header(void* filter, int type, InferplaneBytes key,
                                                   InferplaneBytes* value, size_t index, size_t* count);
size_t envoy_dynamic_module_callback_http_get_body_size(void* filter, int type);
size_t envoy_dynamic_module_callback_http_get_body_chunks_size(void* filter, int type);
bool envoy_dynamic_module_callback_http_get_body_chunks(void* filter, int type, InferplaneBytes* chunks);
bool envoy_dynamic_module_callback_http_set_filter_state_bytes(void* filter, InferplaneBytes key,
                                                               InferplaneBytes value);
void envoy_dynamic_module_callback_http_clear_route_cache(void* filter);
bool envoy_dynamic_module_callback_http_set_header(void* filter, int type, InferplaneBytes key,
                                                   InferplaneBytes value);
// Ends the request with an answer of ours; `details` are the response code details.
void envoy_dynamic_module_callback_http_send_response(void* filter, uint32_t status,
                                                      inferplane::abi::Header* headers, size_t header_count,
                                                      InferplaneBytes body, InferplaneBytes details);
// Counters without labels; 0 is success.
int envoy_dynamic_module_callback_http_filter_config_define_counter(void* config, InferplaneBytes name,
                                                                    InferplaneBytes* labels, size_t label_count,
                                                                    size_t* id);
int envoy_dynamic_module_callback_http_filter_increment_counter(void* filter, size_t id, InferplaneBytes* labels,
                                                                size_t label_count, uint64_t value);

}  // extern "C"
