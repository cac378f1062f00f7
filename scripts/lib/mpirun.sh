# How mpirun is started here: the settings that make Open MPI behave the same as root and not, in a
# container and not, with fewer cores than ranks. Sourced after common.sh.
# shellcheck shell=bash

# mpi_settings INTERFACES: for this process and what it starts. INTERFACES is a list of names or of
# networks (10.0.0.0/24) that Open MPI may use; the interface for UCX is Kolo's to find.
mpi_settings() {
  export OMPI_MCA_pml=ob1                         # UCX belongs to Kolo, not to MPI, in this process
  export OMPI_MCA_oob_tcp_if_include=$1           # or it tries every address of the machine in turn
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

# mpi_settings_one_host: all ranks are here; nothing leaves the loopback, and no ssh is looked for.
mpi_settings_one_host() {
  mpi_settings lo
  export OMPI_MCA_btl=self,vader
  export OMPI_MCA_plm=isolated
}
