# --mpi: the ranks are started by the site's mpirun. No MPI library is needed to build it.
hora_add_library(hora_mpirun_plan SOURCES mpirun_plan.cpp LINK hora_launch_core)
hora_add_library(hora_mpi_engine SOURCES mpi_engine.cpp LINK hora_mpirun_plan hora_launcher)
