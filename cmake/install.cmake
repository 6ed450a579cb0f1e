# Installing: headers, both libraries, the CMake package (find_package(poolgrad) gives poolgrad::poolgrad and
# poolgrad::poolgrad_static) and the pkg-config file. All of it may be moved after installation. In parts, with
# cmake --install BUILD --component NAME: `runtime` is what a program needs to run, `development` what it takes to build one,
# `command` the command line.
include(CMakePackageConfigHelpers)

install(TARGETS poolgrad EXPORT poolgradTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(TARGETS poolgrad_static EXPORT poolgradStaticTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(FILES include/poolgrad/poolgrad.h include/poolgrad/poolgrad.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/poolgrad
        COMPONENT development)

set(poolgrad_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/poolgrad)
foreach(targets poolgradTargets poolgradStaticTargets)
  install(EXPORT ${targets} NAMESPACE poolgrad:: DESTINATION ${poolgrad_package_dir} COMPONENT development)
endforeach()
configure_package_config_file(cmake/poolgradConfig.cmake.in ${PROJECT_BINARY_DIR}/poolgradConfig.cmake
                              INSTALL_DESTINATION ${poolgrad_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/poolgradConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/poolgradConfig.cmake ${PROJECT_BINARY_DIR}/poolgradConfigVersion.cmake
        DESTINATION ${poolgrad_package_dir} COMPONENT development)

# The prefix is found from where the .pc file lies. What a static link needs besides: the libraries we were built with.
file(RELATIVE_PATH poolgrad_pc_to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
set(poolgrad_pc_private "-lstdc++ -lm")
if(POOLGRAD_SIMD)
  string(PREPEND poolgrad_pc_private "-lhwy ")
endif()
if(POOLGRAD_CUDA)
  get_filename_component(poolgrad_cudart_dir "${CUDA_cudart_static_LIBRARY}" DIRECTORY)
  string(PREPEND poolgrad_pc_private "-L${poolgrad_cudart_dir} -lcudart_static -ldl -lrt ")
endif()
configure_file(cmake/poolgrad.pc.in ${PROJECT_BINARY_DIR}/poolgrad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/poolgrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
