# Tests of what surrounds the library, each a matter of seconds: the ABI table, the wheel's metadata, the links and the code blocks of the
# documentation, the notebook. Included by tests/CMakeLists.txt. The packages themselves are tried by `make test-package`, the other languages' blocks
# by `make test-docs`.
find_program(POOLGRAD_PYTHON NAMES python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(POOLGRAD_PYTHON)
  add_test(NAME abi COMMAND ${POOLGRAD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/abi/table.py $<TARGET_FILE:poolgrad>)
  add_test(NAME packaging COMMAND ${POOLGRAD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/packaging/backend_test.py $<TARGET_FILE:poolgrad>)
  add_test(NAME docs_links COMMAND ${POOLGRAD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/links.py)
  add_test(NAME docs_blocks COMMAND ${POOLGRAD_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/docs/blocks.py --build ${PROJECT_BINARY_DIR}
                                    --language c,cpp,cmake)
  if(CMAKE_BUILD_TYPE STREQUAL Release AND NOT POOLGRAD_SANITIZE AND NOT POOLGRAD_CUDA)
    add_test(NAME budget COMMAND ${POOLGRAD_PYTHON} ${PROJECT_SOURCE_DIR}/tools/budget ${PROJECT_BINARY_DIR})
  endif()
endif()

# The examples in C; those in C++ are in tests/CMakeLists.txt.
file(GLOB c_examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
foreach(source ${c_examples})
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name}_c ${source})
  set_target_properties(example_${name}_c PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(example_${name}_c PRIVATE -Wall -Wextra -Wpedantic)
  target_link_libraries(example_${name}_c PRIVATE poolgrad)
  add_test(NAME example_${name}_c COMMAND example_${name}_c)
endforeach()
