// The library's entry: makes the operators known to ONNX Runtime as the domain `inferplane.llm`.
#include <cstring>
#include <memory>
#include <new>

#include "operators.h"
#include "ort_abi.h"
#include "variants.h"

namespace {

using llm::Element;
using llm::Inputs;
using llm::Tensor;

constexpr const char* kDomain = "inferplane.llm";

ort::Api api;  // set by the first session's registration, before any kernel runs; only read afterwards

// A call of the runtime failed; carries its status, which the caller hands on.
struct RuntimeFailure {
  ort::Status* status;
};

void check(ort::Status* status) {
  if (status) throw RuntimeFailure{status};
}

// Runs what may throw; nothing may be thrown into ONNX Runtime, which calls us through a C interface.
template <class Work>
ort::Status* guarded(const char* name, Work work) noexcept {
  try {
    work();
    return nullptr;
  } catch (const RuntimeFailure& failure) {
    return failure.status;
  } catch (const llm::InvalidInput& problem) {
    return api.create_status(ort::kInvalidArgument, (std::string(name) + ": " + problem.what()).c_str());
  } catch (const std::exception& problem) {
    return api.create_status(ort::kFail, (std::string(name) + ": " + problem.what()).c_str());
  }
}

// The session's thread pool, during one call of a kernel.
class SessionPool final : public llm::Parallel {
 public:
  explicit SessionPool(const ort::KernelContext* context) : context_(context) {}

 private:
  void start(size_t pieces, void (*work)(void*, size_t), void* user) override {
    // As many batches as pieces: threads fetch the next one when they are done, so one that was held up holds up
    // nobody.
    check(api.parallel_for(context_, work, pieces, pieces, user));
  }

  const ort::KernelContext* context_;
};

Element element_of(int onnx_type) {
  switch (onnx_type) {
    case ort::kFloat: return Element::kFloat;
    case ort::kFloat16: return Element::kFloat16;
    case ort::kUint8: return Element::kUint8;
    case ort::kInt32: return Element::kInt32;
    default: return Element::kOther;
  }
}

Tensor view(const ort::Value* value) {
  Tensor tensor;
  if (!value) return tensor;  // an optional input that was left out
  ort::TypeAndShape* described = nullptr;
  check(api.get_tensor_type_and_shape(value, &described));
  const std::unique_ptr<ort::TypeAndShape, void (*)(ort::TypeAndShape*)> owned(
      described, [](ort::TypeAndShape* it) { api.release_type_and_shape(it); });
  int type = 0;
  size_t rank = 0;
  check(api.get_tensor_element_type(described, &type));
  check(api.get_dimensions_count(described, &rank));
  tensor.element = element_of(type);
  tensor.shape.resize(rank);
  check(api.get_dimensions(described, tensor.shape.data(), rank));
  check(api.get_tensor_mutable_data(const_cast<ort::Value*>(value), &tensor.data));
  return tensor;
}

Inputs inputs_of(const ort::KernelContext* context) {
  size_t count = 0;
  check(api.get_input_count(context, &count));
  Inputs inputs(count);
  for (size_t i = 0; i < count; i++) {
    const ort::Value* value = nullptr;
    check(api.get_input(context, i, &value));
    inputs[i] = view(value);
  }
  return inputs;
}

float* output_of(ort::KernelContext* context, const llm::Shape& shape) {
  ort::Value* value = nullptr;
  void* data = nullptr;
  check(api.get_output(context, 0, shape.data(), shape.size(), &value));
  check(api.get_tensor_mutable_data(value, &data));
  return static_cast<float*>(data);
}

// Attributes of a node. One that is missing has its default.
class Attributes {
 public:
  explicit Attributes(const ort::KernelInfo* info) : info_(info) {}

  int64_t integer(const char* name, int64_t otherwise) const {
    int64_t value = 0;
    return found(api.get_attribute_int64(info_, name, &value)) ? value : otherwise;
  }
  float number(const char* name, float otherwise) const {
    float value = 0;
    return found(api.get_attribute_float(info_, name, &value)) ? value : otherwise;
  }
  std::string text(const char* name, const char* otherwise) const {
    size_t size = 0;
    if (!found(api.get_attribute_string(info_, name, nullptr, &size))) return otherwise;
    std::string value(size, '\0');
    check(api.get_attribute_string(info_, name, value.data(), &size));
    value.resize(std::strlen(value.c_str()));
    return value;
  }

 private:
  static bool found(ort::Status* status) {
    if (status) api.release_status(status);
    return !status;
  }

  const ort::KernelInfo* info_;
};

llm::QLinear* make_qlinear(const Attributes& of) {
  return new llm::QLinear(of.integer("columns", 0), of.integer("bits", 0));
}

llm::PagedAttention* make_paged_attention(const Attributes& of) {
  llm::PagedAttentionAttributes a;
  a.num_heads = of.integer("num_heads", a.num_heads);
  a.kv_num_heads = of.integer("kv_num_heads", a.kv_num_heads);
  a.layer = of.integer("layer", a.layer);
  a.window = of.integer("window", a.window);
  a.softcap = of.number("softcap", a.softcap);
  a.scale = of.number("scale", a.scale);
  a.epsilon = of.number("epsilon", a.epsilon);
  return new llm::PagedAttention(a);
}

llm::SwiGLU* make_swiglu(const Attributes& of) {
  const std::string activation = of.text("activation", "silu");
  llm::require(activation == "silu" || activation == "gelu_tanh", "activation is ", activation,
               ", not silu or gelu_tanh");
  return new llm::SwiGLU(activation == "silu" ? llm::Activation::kSilu : llm::Activation::kGeluTanh);
}

// What ONNX Runtime asks about an operator, and its kernels.
template <class Operator>
struct Definition : ort::CustomOp {
  const char* name;
  Operator* (*make)(const Attributes&);
  std::vector<int> types;  // of inputs
  size_t required;         // inputs that can't be left out

  Definition(const char* its_name, Operator* (*its_make)(const Attributes&), std::vector<int> its_types, size_t its_required)
      : ort::CustomOp{}, name(its_name), make(its_make), types(std::move(its_types)), required(its_required) {
    version = ort::kApiVersion;
    get_name = [](const CustomOp* op) { return self(op).name; };
    get_execution_provider = [](const CustomOp*) -> const char* { return nullptr; };
    get_input_count = [](const CustomOp* op) { return self(op).types.size(); };
    get_input_type = [](const CustomOp* op, size_t i) { return self(op).types[i]; };
    get_input_characteristic = [](const CustomOp* op, size_t i) {
      return i < self(op).required ? ort::kRequired : ort::kOptional;
    };
    get_input_memory_type = [](const CustomOp*, size_t) { return 0; };
    get_output_count = [](const CustomOp*) -> size_t { return 1; };
    get_output_type = [](const CustomOp*, size_t) { return ort::kFloat; };
    get_output_characteristic = [](const CustomOp*, size_t) { return ort::kRequired; };
    get_variadic_input_min = get_variadic_output_min = [](const CustomOp*) { return 1; };
    get_variadic_input_homogeneity = get_variadic_output_homogeneity = [](const CustomOp*) { return 1; };
    get_start_version = get_end_version = [](const CustomOp*) { return 1; };
    create_kernel_v2 = [](const CustomOp* op, const void*, const ort::KernelInfo* info, void** kernel) {
      return guarded(self(op).name, [&] { *kernel = new Kernel{self(op).name, make_one(op, info)}; });
    };
    kernel_compute_v2 = [](void* kernel, ort::KernelContext* context) {
      const Kernel& it = *static_cast<Kernel*>(kernel);
      return guarded(it.name, [&] {
        const Inputs inputs = inputs_of(context);
        SessionPool pool(context);
        it.operation->compute(inputs, output_of(context, it.operation->shape(inputs)), pool);
      });
    };
    kernel_destroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  }

 private:
  struct Kernel {
    const char* name;
    std::unique_ptr<Operator> operation;
  };

  static const Definition& self(const CustomOp* op) { return *static_cast<const Definition*>(op); }
  static std::unique_ptr<Operator> make_one(const CustomOp* op, const ort::KernelInfo* info) {
    return std::unique_ptr<Operator>(self(op).make(Attributes(info)));
  }
};

std::vector<int> attention_types(int kv) {
  using namespace ort;
  return {kFloat, kv, kInt32, kInt32, kInt32, kFloat, kFloat, kFloat, kFloat};
}

ort::CustomOpDomain* make_domain() {
  using namespace ort;
  static const Definition<llm::QLinear> qlinear("QLinear", make_qlinear, {kFloat, kUint8, kFloat16, kFloat}, 3);
  // Two kernels of one operator: the cache is of either type.
  static const Definition<llm::PagedAttention> half("PagedAttention", make_paged_attention, attention_types(kFloat16), 7);
  static const Definition<llm::PagedAttention> full("PagedAttention", make_paged_attention, attention_types(kFloat), 7);
  static const Definition<llm::SwiGLU> swiglu("SwiGLU", make_swiglu, {kFloat}, 1);
  CustomOpDomain* domain = nullptr;
  check(api.create_custom_op_domain(kDomain, &domain));
  for (const CustomOp* op : std::initializer_list<const CustomOp*>{&qlinear, &half, &full, &swiglu}) {
    check(api.custom_op_domain_add(domain, op));
  }
  return domain;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// What `register_custom_ops_library` calls.
EXPORTED ort::Status* RegisterCustomOps(ort::SessionOptions* options, const ort::ApiBase* base) {
  const void* const* table = base->get_api(ort::kApiVersion);
  if (!table) {  // older than 1.17: no table of ours to make a status with, but its first one has that entry
    return ort::Api(base->get_api(1)).create_status(ort::kFail, "inferplane.llm needs ONNX Runtime 1.17 or newer");
  }
  // Sessions are opened while others compute, in a process that has one runtime: its table is taken once.
  [[maybe_unused]] static const bool is_set = (api = ort::Api(table), true);
  return guarded(kDomain, [&] {
    static ort::CustomOpDomain* const domain = make_domain();  // must outlive all sessions, so it is never given back
    check(api.add_custom_op_domain(options, domain));
  });
}

// The kernels in use: avx512, avx2 or portable.
EXPORTED const char* inferplane_llm_variant() { return llm::kernels().name; }

// Uses other kernels, for tests and measurements; false if this CPU has not what they need.
EXPORTED bool inferplane_llm_select(const char* name) { return llm::select_kernels(name); }
