// An HTTP filter of Envoy that reads endpoint and version from a call's first message and keeps them as filter state,
// by which the route is chosen. It stands before the filters that do the same for any message by its descriptor
// (grpc_field_extraction, set_filter_state), which are then skipped and cost a third of the edge's time; whatever it
// does not find plain and simple it leaves to them, and so their errors stay the edge's errors.
//
// Configuration: lines of `path field_of_endpoint field_of_version`, then the keys of the filter state, one a line:
// endpoint, version, route (both in one, with `@` between them).

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "first_message.h"
#include "module_abi.h"

#define HOOK extern "C" __attribute__((visibility("default")))

namespace {

using inferplane::Names;
using inferplane::NameFields;
using inferplane::Piece;
using inferplane::Reading;
using inferplane::abi::Bytes;
using inferplane::abi::BodyType;

struct Config {
  std::unordered_map<std::string, NameFields> methods;
  std::vector<std::string> keys;  // endpoint, version, route
};

struct Filter {
  const Config* config;
  const NameFields* fields = nullptr;  // of the call's method, until its first message has been read
  uint64_t wanted = 0;                 // bytes of the body without which nothing can be said
};

Bytes bytes_of(std::string_view text) { return {text.data(), text.size()}; }

// One line of the configuration's first part; false if it is none.
bool add_method(const std::string& line, Config* config) {
  const size_t first = line.find(' ');
  const size_t second = first == std::string::npos ? first : line.find(' ', first + 1);
  if (second == std::string::npos) return false;
  const auto number = [&line](size_t at) {
    return static_cast<uint32_t>(std::strtoul(line.c_str() + at + 1, nullptr, 10));
  };
  config->methods[line.substr(0, first)] = NameFields{number(first), number(second)};
  return true;
}

Config* config_of(std::string_view text) {
  auto* config = new Config;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line(text.substr(begin, end - begin));
    if (!line.empty() && !add_method(line, config)) config->keys.push_back(line);
    begin = end + 1;
  }
  if (config->keys.size() == 3) return config;
  delete config;
  return nullptr;
}

void append_pieces(void* envoy, BodyType type, std::vector<Piece>* pieces) {
  const size_t count = envoy_dynamic_module_callback_http_get_body_chunks_size(envoy, type);
  if (count == 0) return;
  std::vector<Bytes> found(count);
  if (!envoy_dynamic_module_callback_http_get_body_chunks(envoy, type, found.data())) return;
  for (const Bytes& bytes : found) pieces->push_back({bytes.data, bytes.size});
}

void keep(void* envoy, const Config& config, const Names& names) {
  const auto set = [envoy](const std::string& key, const std::string& value) {
    envoy_dynamic_module_callback_http_set_filter_state_bytes(envoy, bytes_of(key), bytes_of(value));
  };
  set(config.keys[0], names.endpoint);
  if (!names.version.empty()) set(config.keys[1], names.version);
  set(config.keys[2], names.endpoint + '@' + names.version);
  envoy_dynamic_module_callback_http_clear_route_cache(envoy);
}

// Looks at the body as far as it is there.
Reading look(void* envoy, Filter* filter) {
  const uint64_t size =
      envoy_dynamic_module_callback_http_get_body_size(envoy, inferplane::abi::kBufferedRequestBody) +
      envoy_dynamic_module_callback_http_get_body_size(envoy, inferplane::abi::kReceivedRequestBody);
  // A large message comes in thousands of pieces: they are looked at twice, not each time.
  if (size < filter->wanted) return Reading::kMore;
  std::vector<Piece> pieces;
  append_pieces(envoy, inferplane::abi::kBufferedRequestBody, &pieces);
  append_pieces(envoy, inferplane::abi::kReceivedRequestBody, &pieces);
  Names names;
  const Reading reading = inferplane::read_names(pieces, size, *filter->fields, &names);
  if (reading == Reading::kFound) keep(envoy, *filter->config, names);
  if (reading == Reading::kMore) {
    inferplane::Cursor cursor(pieces);
    uint64_t length = 0;
    const bool has_prefix = inferplane::read_prefix(&cursor, &length) == Reading::kFound;
    filter->wanted = inferplane::kPrefixBytes + (has_prefix ? length : 0);
  }
  return reading;
}

}  // namespace

HOOK const char* envoy_dynamic_module_on_program_init() { return "v0.2.0"; }  // that of Envoy 1.40

HOOK const void* envoy_dynamic_module_on_http_filter_config_new(void*, Bytes, Bytes config) {
  return config_of({config.data, config.size});  // null: Envoy refuses the listener
}

HOOK void envoy_dynamic_module_on_http_filter_config_destroy(const void* config) {
  delete static_cast<const Config*>(config);
}

HOOK const void* envoy_dynamic_module_on_http_filter_new(const void* config, void*) {
  return new Filter{static_cast<const Config*>(config)};
}

HOOK void envoy_dynamic_module_on_http_filter_destroy(const void* filter) {
  delete static_cast<const Filter*>(filter);
}

HOOK int envoy_dynamic_module_on_http_filter_request_headers(void* envoy, const void* ours, bool end) {
  auto* filter = static_cast<Filter*>(const_cast<void*>(ours));
  Bytes path{};
  if (end || !envoy_dynamic_module_callback_http_get_header(envoy, inferplane::abi::kRequestHeader,
                                                            bytes_of(":path"), &path, 0, nullptr)) {
    return inferplane::abi::kHeadersContinue;
  }
  const auto found = filter->config->methods.find(std::string(path.data, path.size));
  if (found == filter->config->methods.end()) return inferplane::abi::kHeadersContinue;
  filter->fields = &found->second;
  return inferplane::abi::kHeadersStop;
}

HOOK int envoy_dynamic_module_on_http_filter_request_body(void* envoy, const void* ours, bool end) {
  auto* filter = static_cast<Filter*>(const_cast<void*>(ours));
  if (filter->fields == nullptr) return inferplane::abi::kBodyContinue;
  if (look(envoy, filter) == Reading::kMore && !end) return inferplane::abi::kBodyStopAndBuffer;
  filter->fields = nullptr;
  return inferplane::abi::kBodyContinue;
}

// Hooks that a module must have, and in which there is nothing to do.
HOOK int envoy_dynamic_module_on_http_filter_request_trailers(void*, const void*) { return 0; }
HOOK int envoy_dynamic_module_on_http_filter_response_headers(void*, const void*, bool) { return 0; }
HOOK int envoy_dynamic_module_on_http_filter_response_body(void*, const void*, bool) { return 0; }
HOOK int envoy_dynamic_module_on_http_filter_response_trailers(void*, const void*) { return 0; }
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
