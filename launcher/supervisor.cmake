# The launcher proper: what decides (pure), and what obeys.
hora_add_library(hora_job_state SOURCES job_state.cpp outcome_text.cpp
                 LINK hora_launch_core hora_agent_protocol)
hora_add_library(hora_launcher_io SOURCES config_reader.cpp host_link.cpp input_pump.cpp output_writer.cpp signals.cpp
                 LINK hora_os hora_agent_protocol)
hora_add_library(hora_bundle SOURCES bundle.cpp
                 LINK hora_os hora_agent_protocol nlohmann_json::nlohmann_json ZLIB::ZLIB
                      ${HORA_LIBMD_STATIC})
hora_add_library(hora_launcher SOURCES event_log.cpp host_connector.cpp job_rendezvous.cpp job_streams.cpp locality.cpp orders.cpp live_line.cpp output_sinks.cpp start_display.cpp
                    supervisor.cpp supervisor_actions.cpp supervisor_clock.cpp timings.cpp
                 LINK hora_job_state hora_launcher_io hora_bundle hora_launch_core hora_transports
                      hora_agent_core hora_rendezvous hora_log)
