// What a program does that gets no memory for an object, or no thread: one line, and an exit code
// of its own. Nothing can be put in order without; whoever depends on the process sees it end and
// does that.
#pragma once

namespace hora::os {

// `name` begins the line on standard error; it must live as long as the process.
void exit_when_out_of_resources(const char* name, int exit_code);

}  // namespace hora::os
