#pragma once

#include <string>
#include <type_traits>

namespace kolo {

/// A library that is loaded on first use, so that programs that do not need it run where it is not
/// installed. It is never unloaded, since its background work may continue.
///
/// Threads: any.
/// Errors:  KoloError(kConfig) "PURPOSE: REASON; REMEDY", with the loader's reason, if the library
/// is
///          missing or lacks a function.
class SharedLibrary {
 public:
  struct Config {
    std::string file;     ///< A path, or a name for the loader to search.
    std::string purpose;  ///< The feature that needs the library.
    std::string remedy;   ///< What the user can do.
  };

  /// The address of a function; converts to the function type that it is assigned to.
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

  /// Throws the same kind of error with another reason.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  Config config_;
  void* handle_;
};

}  // namespace kolo
