// The processes of MPICH's launchers learn of each other by PMI-1, without any MPI library.
#pragma once

#include "collectives/backends/meeting_point.h"

namespace hora::collectives {

const MeetingPoint& pmi_meeting_point();

}  // namespace hora::collectives
