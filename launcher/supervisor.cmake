# The launcher proper: what decides (pure), and what obeys.
hora_add_library(hora_job_state SOURCES autopsy_text.cpp job_report.cpp job_report_html.cpp job_state.cpp outcome_text.cpp
                            rank_bill.cpp
                 LINK hora_launch_core hora_agent_protocol)
hora_add_library(hora_launcher_io SOURCES config_reader.cpp host_link.cpp input_pump.cpp output_writer.cpp signals.cpp
                 LINK hora_os hora_agent_protocol)
hora_add_library(hora_bundle SOURCES bundle.cpp
                 LINK hora_os hora_agent_protocol nlohmann_json::nlohmann_json ZLIB::ZLIB
                      ${HORA_LIBMD_STATIC})
hora_add_library(hora_launcher SOURCES autopsy.cpp event_log.cpp host_connector.cpp job_recorder.cpp job_rendezvous.cpp job_streams.cpp locality.cpp orders.cpp live_line.cpp output_sinks.cpp start_display.cpp
                    supervisor.cpp supervisor_actions.cpp supervisor_clock.cpp supervisor_end.cpp timeline_merge.cpp timings.cpp
                 LINK hora_job_state hora_launcher_io hora_bundle hora_launch_core hora_transports
                      hora_agent_core hora_rendezvous hora_log)

# horarun doctor: facts to findings and their text (pure), and the examination itself.
find_package(Python3 3.8 REQUIRED COMPONENTS Interpreter)
set(hora_known_problems ${CMAKE_CURRENT_BINARY_DIR}/generated/known_problems.cpp)
add_custom_command(OUTPUT ${hora_known_problems}
  COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/known-problems --source ${hora_known_problems}
  DEPENDS ${PROJECT_SOURCE_DIR}/scripts/known-problems
          ${PROJECT_SOURCE_DIR}/docs/known-problems/problems.json VERBATIM)
hora_add_library(hora_findings
  SOURCES doctor/findings.cpp doctor/set_findings.cpp doctor/known_problems.cpp doctor/report.cpp
          ${hora_known_problems}
  LINK hora_launch_core hora_agent_protocol nlohmann_json::nlohmann_json)
hora_add_library(hora_doctor_run SOURCES doctor/doctor.cpp LINK hora_findings hora_launcher)
