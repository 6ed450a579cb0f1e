// The C ABI as a Node addon. Every function works on the memory of the typed arrays it is given: nothing is copied but
// structs and strings. It assumes what src/plan.ts guarantees: arrays of the right type and length, handles made by
// `create`.
//
// Errors: a status other than OK throws new PoolgradError(status, sentence), the class given to `open`.
#include <napi.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "poolgrad/poolgrad.h"

namespace {

using Info = Napi::CallbackInfo;
using Value = Napi::Value;

struct State {
  Napi::FunctionReference error;  // class PoolgradError
};

// Throws when `status` is not OK; true when the caller must return.
bool Failed(Napi::Env env, poolgrad_status status) {
  if (status == POOLGRAD_OK) return false;
  const Napi::Function error = env.GetInstanceData<State>()->error.Value();
  const Napi::Value thrown = error.New({Napi::Number::New(env, status), Napi::String::New(env, poolgrad_last_error())});
  napi_throw(env, thrown);
  return true;
}

// A plan goes when JavaScript destroys it, and with the worker that made it at the latest.
struct Handle {
  poolgrad_plan* plan;
};

Handle* HandleOf(const Info& info) { return info[0].As<Napi::External<Handle>>().Data(); }
poolgrad_plan* Plan(const Info& info) { return HandleOf(info)->plan; }

void Destroy(Handle* handle) {
  poolgrad_plan_destroy(handle->plan);
  handle->plan = nullptr;
}

// The memory of a typed array; null for null.
template <class T = void>
T* Data(const Value& value) {
  if (!value.IsTypedArray()) return nullptr;
  const auto array = value.As<Napi::TypedArray>();
  return reinterpret_cast<T*>(static_cast<uint8_t*>(array.ArrayBuffer().Data()) + array.ByteOffset());
}

// The same for an array that is about to be written. A large new one has no memory behind it yet; asked for in huge
// pages, it comes in hundreds of faults instead of tens of thousands, which would take longer than the work itself.
void* Result(const Value& value) {
  void* data = Data(value);
#ifdef __linux__
  constexpr uintptr_t kHuge = uintptr_t{2} << 20;
  if (data != nullptr) {
    const auto begin = (reinterpret_cast<uintptr_t>(data) + kHuge - 1) & ~(kHuge - 1);
    const auto end = (reinterpret_cast<uintptr_t>(data) + value.As<Napi::TypedArray>().ByteLength()) & ~(kHuge - 1);
    if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // only advice: may fail
  }
#endif
  return data;
}

template <class T>
Value CopyOut(Napi::Env env, const void* from, size_t count) {
  auto array = Napi::TypedArrayOf<T>::New(env, count);
  std::memcpy(array.Data(), from, count * sizeof(T));
  return array;
}

// PackedProblem of src/raw.ts: the struct up to its pointers, and the tables they lead to.
constexpr size_t kHead = offsetof(poolgrad_problem, starts);

poolgrad_problem Problem(const Value& value) {
  poolgrad_problem problem = {};
  const auto packed = value.As<Napi::Object>();
  std::memcpy(&problem, packed.Get("head").As<Napi::Uint8Array>().Data(), kHead);
  problem.struct_size = sizeof(problem);
  const auto tables = packed.Get("tables").As<Napi::Array>();
  for (uint32_t axis = 0; axis < 3; ++axis) {
    problem.starts[axis] = Data<int64_t>(tables.Get(axis));
    problem.sizes[axis] = Data<int64_t>(tables.Get(3 + axis));
  }
  return problem;
}

Value Packed(Napi::Env env, const poolgrad_problem& problem) {
  const auto table = [&](const int64_t* numbers, int64_t count) {
    return numbers ? CopyOut<int64_t>(env, numbers, static_cast<size_t>(count)) : env.Null();
  };
  auto tables = Napi::Array::New(env, 6);
  for (uint32_t axis = 0; axis < 3; ++axis) {
    tables.Set(axis, table(problem.starts[axis], problem.outputs[axis]));
    tables.Set(3 + axis, table(problem.sizes[axis], problem.outputs[axis]));
  }
  auto packed = Napi::Object::New(env);
  packed.Set("head", CopyOut<uint8_t>(env, &problem, kHead));
  packed.Set("tables", tables);
  return packed;
}

// The result of a function that writes text into a buffer and says how much it needs.
template <class Write>
Value Text(Napi::Env env, Write write) {
  size_t needed = 0;
  if (Failed(env, write(nullptr, 0, &needed))) return env.Undefined();
  std::string text(needed, '\0');
  if (Failed(env, write(text.data(), text.size(), &needed))) return env.Undefined();
  return Napi::String::New(env, text.c_str());
}

Value Parse(const Info& info) {
  poolgrad_problem problem = {};
  constexpr size_t kKnown = offsetof(poolgrad_problem, whole_in);  // what lies behind (parts, bias) is refused
  const std::string text = info[0].As<Napi::String>();
  if (Failed(info.Env(), poolgrad_problem_parse_sized(text.c_str(), &problem, kKnown))) return info.Env().Undefined();
  return Packed(info.Env(), problem);
}

Value Format(const Info& info) {
  const poolgrad_problem problem = Problem(info[0]);
  return Text(info.Env(), [&](char* text, size_t capacity, size_t* needed) {
    return poolgrad_problem_format(&problem, text, capacity, needed);
  });
}

Value Create(const Info& info) {
  const poolgrad_problem problem = Problem(info[0]);
  const std::string algorithm = info[1].IsString() ? std::string(info[1].As<Napi::String>()) : std::string();
  poolgrad_plan_options options = {sizeof(options), algorithm.empty() ? nullptr : algorithm.c_str(), 0, 0};
  poolgrad_plan* plan = nullptr;
  if (Failed(info.Env(), poolgrad_plan_create(&problem, &options, &plan))) return info.Env().Undefined();
  return Napi::External<Handle>::New(info.Env(), new Handle{plan}, [](Napi::Env, Handle* handle) {
    Destroy(handle);
    delete handle;
  });
}

void DestroyNow(const Info& info) { Destroy(HandleOf(info)); }

Value PlanInfo(const Info& info) {
  poolgrad_info result = {};
  result.struct_size = sizeof(result);
  if (Failed(info.Env(), poolgrad_plan_info(Plan(info), &result))) return info.Env().Undefined();
  return CopyOut<uint8_t>(info.Env(), &result, sizeof(result));
}

Value Explain(const Info& info) {
  return Text(info.Env(), [&](char* text, size_t capacity, size_t* needed) {
    return poolgrad_plan_explain(Plan(info), text, capacity, needed);
  });
}

Value AlgorithmName(const Info& info) {
  const auto op = static_cast<poolgrad_op>(info[1].As<Napi::Number>().Int32Value());
  const char* name = poolgrad_plan_algorithm(Plan(info), op);
  return name == nullptr ? info.Env().Null() : Napi::String::New(info.Env(), name);
}

poolgrad_numbering Numbering(const Value& value) {
  return static_cast<poolgrad_numbering>(value.As<Napi::Number>().Int32Value());
}

void Forward(const Info& info) {
  Failed(info.Env(), poolgrad_forward(Plan(info), Data(info[1]), Result(info[2]), Data(info[3]), nullptr));
}
void Backward(const Info& info) {
  Failed(info.Env(), poolgrad_backward(Plan(info), Data(info[1]), Data(info[2]), Result(info[3]), nullptr));
}
void BackwardX(const Info& info) {
  Failed(info.Env(), poolgrad_backward_x(Plan(info), Data(info[1]), Data(info[2]), Result(info[3]), nullptr));
}
void Gather(const Info& info) {
  Failed(info.Env(), poolgrad_gather(Plan(info), Data(info[1]), Data(info[2]), Result(info[3]), nullptr));
}
void Unpool(const Info& info) {
  Failed(info.Env(), poolgrad_unpool(Plan(info), Data(info[1]), Data(info[2]), Result(info[3]), nullptr));
}
void Jacobian(const Info& info) {
  Failed(info.Env(), poolgrad_jacobian(Plan(info), Data(info[1]), Data<int64_t>(info[2]), Data<int64_t>(info[3]),
                                       Data<double>(info[4])));
}
void RoutesToIndices(const Info& info) {
  Failed(info.Env(),
         poolgrad_routes_to_indices(Plan(info), Data(info[1]), Numbering(info[2]), Data<int64_t>(info[3]), nullptr));
}
void RoutesFromIndices(const Info& info) {
  Failed(info.Env(),
         poolgrad_routes_from_indices(Plan(info), Data<int64_t>(info[1]), Numbering(info[2]), Data(info[3])));
}
void UnpoolIndices(const Info& info) {
  Failed(info.Env(), poolgrad_unpool_indices(Plan(info), Data(info[1]), Data<int64_t>(info[2]), Numbering(info[3]),
                                             Data<int64_t>(info[4]), Data(info[5])));
}

Value Version(const Info& info) { return Napi::String::New(info.Env(), poolgrad_version()); }
Value SimdTarget(const Info& info) { return Napi::String::New(info.Env(), poolgrad_simd_target()); }
Value DefaultThreads(const Info& info) { return Napi::Number::New(info.Env(), poolgrad_default_threads()); }

// open(PoolgradError): the engine's functions, under the names of src/raw.ts.
Value Open(const Info& info) {
  const Napi::Env env = info.Env();
  env.GetInstanceData<State>()->error = Napi::Persistent(info[0].As<Napi::Function>());
  Napi::Object engine = Napi::Object::New(env);
  const auto add = [&](const char* name, auto function) { engine.Set(name, Napi::Function::New(env, function, name)); };
  add("version", Version);
  add("simdTarget", SimdTarget);
  add("defaultThreads", DefaultThreads);
  add("parse", Parse);
  add("format", Format);
  add("create", Create);
  add("destroy", DestroyNow);
  add("info", PlanInfo);
  add("explain", Explain);
  add("algorithm", AlgorithmName);
  add("forward", Forward);
  add("backward", Backward);
  add("backwardX", BackwardX);
  add("gather", Gather);
  add("unpool", Unpool);
  add("jacobian", Jacobian);
  add("routesToIndices", RoutesToIndices);
  add("routesFromIndices", RoutesFromIndices);
  add("unpoolIndices", UnpoolIndices);
  return engine;
}

Napi::Object Init(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(new State);
  exports.Set("open", Napi::Function::New(env, Open, "open"));
  return exports;
}

}  // namespace

NODE_API_MODULE(poolgrad, Init)
