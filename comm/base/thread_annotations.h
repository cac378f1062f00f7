#pragma once

// Annotations for Clang's thread safety analysis (-Wthread-safety). They state which mutex guards
// which data; the build fails where data is used without its mutex. Other compilers ignore them.
// The analysis knows the `Mutex` of comm/base/mutex.h.

#ifdef __clang__
#define KOLO_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define KOLO_THREAD_ATTRIBUTE(x)
#endif

/// A class whose objects can be held, such as a mutex.
#define KOLO_CAPABILITY(name) KOLO_THREAD_ATTRIBUTE(capability(name))
/// A class that acquires in its constructor and releases in its destructor.
#define KOLO_SCOPED_CAPABILITY KOLO_THREAD_ATTRIBUTE(scoped_lockable)

/// Data that is read and written only while `mutex` is held.
#define KOLO_GUARDED_BY(mutex) KOLO_THREAD_ATTRIBUTE(guarded_by(mutex))
/// A pointer whose target is used only while `mutex` is held.
#define KOLO_PT_GUARDED_BY(mutex) KOLO_THREAD_ATTRIBUTE(pt_guarded_by(mutex))

/// A function, or a lambda, whose caller holds the mutexes.
#define KOLO_REQUIRES(...) KOLO_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
/// A function whose caller does not hold the mutexes, because the function locks them itself.
#define KOLO_EXCLUDES(...) KOLO_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
/// A function that returns with the mutexes held, or without an argument, with `this` held.
#define KOLO_ACQUIRE(...) KOLO_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
/// A function that releases the mutexes, or without an argument, `this`.
#define KOLO_RELEASE(...) KOLO_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))

/// A function that the analysis skips. The comment beside it says why it is safe.
#define KOLO_NO_THREAD_SAFETY_ANALYSIS KOLO_THREAD_ATTRIBUTE(no_thread_safety_analysis)
