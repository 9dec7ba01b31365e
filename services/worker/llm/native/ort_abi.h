// The part of ONNX Runtime's C ABI that custom operators need, declared here because its wheel ships no headers.
//
// Source: include/onnxruntime/core/session/onnxruntime_c_api.h of github.com/microsoft/onnxruntime. `OrtApi` there is a
// table of functions that is only ever appended to, so an entry's index never changes; each index below is the entry's
// place in that struct. `OrtCustomOp` grows at its end likewise and says in `version` how much of it is there.
#pragma once
#include <cstddef>
#include <cstdint>

namespace ort {

constexpr uint32_t kApiVersion = 17;  // the first one that has everything below

struct Status;
struct KernelInfo;
struct KernelContext;
struct Value;
struct SessionOptions;
struct CustomOpDomain;
struct TypeAndShape;

// OrtErrorCode
constexpr int kFail = 1;
constexpr int kInvalidArgument = 2;

// ONNXTensorElementDataType, which is onnx.TensorProto.DataType
constexpr int kFloat = 1;
constexpr int kUint8 = 2;
constexpr int kInt32 = 6;
constexpr int kFloat16 = 10;

// OrtCustomOpInputOutputCharacteristic
constexpr int kRequired = 0;
constexpr int kOptional = 1;

struct ApiBase {
  const void* const* (*get_api)(uint32_t version);  // nullptr if this runtime is older than `version`
  const char* (*version_string)();
};

// The function table. Names are those of `OrtApi`, in this project's spelling.
class Api {
 public:
  explicit Api(const void* const* table = nullptr) : table_(table) {}

  Status* create_status(int code, const char* text) const { return call<0, Status*>(code, text); }
  Status* create_custom_op_domain(const char* name, CustomOpDomain** out) const { return call<26, Status*>(name, out); }
  Status* custom_op_domain_add(CustomOpDomain* domain, const void* op) const { return call<27, Status*>(domain, op); }
  Status* add_custom_op_domain(SessionOptions* options, CustomOpDomain* domain) const {
    return call<28, Status*>(options, domain);
  }
  Status* get_tensor_mutable_data(Value* value, void** out) const { return call<51, Status*>(value, out); }
  Status* get_tensor_element_type(const TypeAndShape* of, int* out) const { return call<60, Status*>(of, out); }
  Status* get_dimensions_count(const TypeAndShape* of, size_t* out) const { return call<61, Status*>(of, out); }
  Status* get_dimensions(const TypeAndShape* of, int64_t* out, size_t count) const {
    return call<62, Status*>(of, out, count);
  }
  Status* get_tensor_type_and_shape(const Value* value, TypeAndShape** out) const {
    return call<65, Status*>(value, out);
  }
  Status* get_attribute_float(const KernelInfo* info, const char* name, float* out) const {
    return call<85, Status*>(info, name, out);
  }
  Status* get_attribute_int64(const KernelInfo* info, const char* name, int64_t* out) const {
    return call<86, Status*>(info, name, out);
  }
  // With `text` null it only tells the size, the closing zero included.
  Status* get_attribute_string(const KernelInfo* info, const char* name, char* text, size_t* size) const {
    return call<87, Status*>(info, name, text, size);
  }
  Status* get_input_count(const KernelContext* context, size_t* out) const { return call<88, Status*>(context, out); }
  Status* get_input(const KernelContext* context, size_t index, const Value** out) const {
    return call<90, Status*>(context, index, out);
  }
  Status* get_output(KernelContext* context, size_t index, const int64_t* dims, size_t count, Value** out) const {
    return call<91, Status*>(context, index, dims, count, out);
  }
  void release_status(Status* status) const { call<93, void>(status); }
  void release_type_and_shape(TypeAndShape* of) const { call<99, void>(of); }
  // Runs work(user, 0 … total - 1) in the session's own thread pool, handed out in `batches` pieces.
  Status* parallel_for(const KernelContext* context, void (*work)(void*, size_t), size_t total, size_t batches,
                       void* user) const {
    return call<274, Status*>(context, work, total, batches, user);
  }

 private:
  template <int index, class Result, class... Arguments>
  Result call(Arguments... arguments) const {
    return reinterpret_cast<Result (*)(Arguments...)>(const_cast<void*>(table_[index]))(arguments...);
  }

  const void* const* table_;
};

// OrtCustomOp as of version 17, field by field in its order.
struct CustomOp {
  uint32_t version;
  void* (*create_kernel)(const CustomOp*, const void* api, const KernelInfo*);
  const char* (*get_name)(const CustomOp*);
  const char* (*get_execution_provider)(const CustomOp*);  // answers nullptr: the CPU's
  int (*get_input_type)(const CustomOp*, size_t);
  size_t (*get_input_count)(const CustomOp*);
  int (*get_output_type)(const CustomOp*, size_t);
  size_t (*get_output_count)(const CustomOp*);
  void (*kernel_compute)(void* kernel, KernelContext*);
  void (*kernel_destroy)(void* kernel);
  int (*get_input_characteristic)(const CustomOp*, size_t);
  int (*get_output_characteristic)(const CustomOp*, size_t);
  int (*get_input_memory_type)(const CustomOp*, size_t);
  int (*get_variadic_input_min)(const CustomOp*);
  int (*get_variadic_input_homogeneity)(const CustomOp*);
  int (*get_variadic_output_min)(const CustomOp*);
  int (*get_variadic_output_homogeneity)(const CustomOp*);
  Status* (*create_kernel_v2)(const CustomOp*, const void* api, const KernelInfo*, void** kernel);
  Status* (*kernel_compute_v2)(void* kernel, KernelContext*);
  Status* (*infer_output_shape)(const CustomOp*, void*);
  int (*get_start_version)(const CustomOp*);
  int (*get_end_version)(const CustomOp*);
  size_t (*get_may_inplace)(int** input, int** output);
  void (*release_may_inplace)(int* input, int* output);
  size_t (*get_alias_map)(int** input, int** output);
  void (*release_alias_map)(int* input, int* output);
};

}  // namespace ort
