# The launcher's pure core: values in, values out.  No fd, no clock, no getenv on its link line.
hora_add_library(hora_launch_core
  SOURCES
    completion.cpp
    dry_run.cpp
    duration.cpp
    exit_code.cpp
    failure_table.cpp
    host_list.cpp
    host_range.cpp
    line_tagger.cpp
    network_candidates.cpp
    network_choice.cpp
    option_spelling.cpp
    option_table.cpp
    option_value.cpp
    plan.cpp
    proof.cpp
    shell_words.cpp
    stderr_hints.cpp
    spec_location.cpp
    start_board.cpp
    start_report.cpp
    start_stage.cpp
    timeline_lines.cpp
    usage_text.cpp
    worker_environment.cpp
  LINK hora_base nlohmann_json::nlohmann_json)

# Which CPUs and GPUs a rank gets; apart, since the agent needs it, too.
hora_add_library(hora_binding SOURCES binding_plan.cpp LINK hora_base)

# argv to a Command; option_check.cpp is the one file that includes CLI11,
# config_file.cpp the one that includes yaml-cpp.
hora_add_library(hora_command_line
  SOURCES
    command_line.cpp
    config_file.cpp
    job_options.cpp
    option_check.cpp
    settings.cpp
  LINK hora_launch_core)
target_include_directories(hora_command_line PRIVATE ${HORA_YAML_INCLUDE})
target_link_libraries(hora_command_line PRIVATE CLI11::CLI11 ${HORA_YAML_STATIC})

# --check-build: the features that CMake found, and what can be loaded here and now.
set(HORA_FEATURE_ROWS "")
foreach(name ${HORA_FEATURE_NAMES})
  if(HORA_HAVE_${name})
    set(found true)
  else()
    set(found false)
  endif()
  string(APPEND HORA_FEATURE_ROWS
         "    {\"${name}\", ${found}, \"${HORA_VERSION_${name}}\", \"${HORA_LOCATION_${name}}\", "
         "\"${HORA_WHY_${name}}\"},\n")
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/scripts/cmake/features.h.in
               ${CMAKE_CURRENT_BINARY_DIR}/generated/hora/features.h @ONLY)
hora_add_library(hora_check_build SOURCES build_facts.cpp check_build.cpp isolated.cpp vendor_library.cpp
                 LINK hora_launch_core hora_bundle hora_os ${CMAKE_DL_LIBS})
target_include_directories(hora_check_build PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
