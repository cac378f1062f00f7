# Settings with which mpirun behaves the same for root and other users, inside and outside of a
# container, and with fewer cores than ranks. Sourced after common.sh.
# shellcheck shell=bash

# mpi_settings INTERFACES: sets them for this process and its children. INTERFACES is a list of the
# names or networks (10.0.0.0/24) that Open MPI may use; Kolo itself finds the interface for UCX.
mpi_settings() {
  export OMPI_MCA_pml=ob1                         # in this process only Kolo uses UCX, not MPI
  export OMPI_MCA_oob_tcp_if_include=$1           # otherwise it tries all addresses in turn
  export OMPI_MCA_btl_tcp_if_include=$1
  export OMPI_MCA_hwloc_base_binding_policy=none  # Kolo places its own threads
  export OMPI_MCA_rmaps_base_oversubscribe=1
  export OMPI_MCA_btl_vader_single_copy_mechanism=none  # containers forbid process_vm_readv
  export OMPI_MCA_btl_base_warn_component_unused=0
  export OMPI_MCA_orte_base_help_aggregate=0
  if ((EUID == 0)); then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
}

# mpi_settings_one_host: for ranks on this machine alone: uses only the loopback interface and no
# ssh.
mpi_settings_one_host() {
  mpi_settings lo
  export OMPI_MCA_btl=self,vader
  export OMPI_MCA_plm=isolated
}
