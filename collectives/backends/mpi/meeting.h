// The processes of an MPI job learn of each other without a rendezvous.
#pragma once

#include "collectives/backends/meeting_point.h"

namespace hora::collectives::mpi {

const MeetingPoint& meeting_point();

}  // namespace hora::collectives::mpi
