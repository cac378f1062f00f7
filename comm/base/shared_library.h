#pragma once

#include <string>
#include <type_traits>

namespace kolo {

/// A library that is loaded at run time, so that programs run without it if they do not need it. It
/// is never unloaded, because its background threads may still run.
///
/// Threads: any.
/// Errors:  KoloError(kConfig) "PURPOSE: REASON; REMEDY" if the library is missing or lacks a
///          function.
class SharedLibrary {
 public:
  struct Config {
    std::string file;     ///< A path, or a file name for which the loader searches.
    std::string purpose;  ///< The feature that needs the library.
    std::string remedy;   ///< Advice for the user.
  };

  /// The address of a function. Converts to any function pointer type.
  class Function {
   public:
    explicit Function(void* address) : address_(address) {}
    template <typename Type>
    requires std::is_function_v<Type>
    operator Type*() const { return reinterpret_cast<Type*>(address_); }

   private:
    void* address_;
  };

  explicit SharedLibrary(Config config);

  Function find(const char* name) const;

  /// Throws KoloError(kConfig) "PURPOSE: REASON; REMEDY" with `reason`.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  Config config_;
  void* handle_;
};

}  // namespace kolo
