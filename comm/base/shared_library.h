#pragma once

#include <string>
#include <type_traits>

namespace kolo {

/// A library that is loaded when it is needed: programs that never need it run where it is not
/// installed. It is never unloaded, since what it has started may go on.
///
/// Threads: any.
/// Errors:  KoloError(kConfig) "PURPOSE: REASON; REMEDY", with the loader's reason, if there is no
///          such library or it lacks a function.
class SharedLibrary {
 public:
  struct Config {
    std::string file;     ///< A path, or a name that the loader looks for.
    std::string purpose;  ///< What needs it.
    std::string remedy;   ///< What the user can do.
  };

  /// The address of a function, of the type that it is assigned to.
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

  /// Throws the error for another reason.
  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  Config config_;
  void* handle_;
};

}  // namespace kolo
