#include "comm/rendezvous/pmix_library.h"

namespace kolo {

PmixLibrary::PmixLibrary()
    : library_({.file = "libpmix.so.2",
                .purpose = "start-up under this launcher needs PMIx",
                .remedy = "install PMIx (package libpmix2), or start the ranks with torchrun or "
                          "srun --mpi=none"}) {}

}  // namespace kolo
