# How a room of src/ becomes a library, and what every file is compiled with.

find_package(Threads REQUIRED)

add_library(strata_options INTERFACE)
# The numerics contract (docs/numerics.md): no contraction of a * b + c that is not written as an fma, no fast-math.
target_compile_options(strata_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off -Wall -Wextra -Wpedantic -Wno-missing-field-initializers>
  # GCC 12 sees an overlap in "text" + std::string that is not there (its bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>)
target_include_directories(strata_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(strata_options INTERFACE Threads::Threads)
if(POLYSTRATA_SANITIZE STREQUAL "address")
  target_compile_options(strata_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1)
  target_link_options(strata_options INTERFACE -fsanitize=address,undefined)
elseif(POLYSTRATA_SANITIZE STREQUAL "thread")
  target_compile_options(strata_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer -g1)
  target_link_options(strata_options INTERFACE -fsanitize=thread)
elseif(NOT POLYSTRATA_SANITIZE STREQUAL "")
  message(FATAL_ERROR "POLYSTRATA_SANITIZE is '${POLYSTRATA_SANITIZE}'; it can be address or thread")
endif()

# The outer rooms and the tests spend their time in libraries' headers, not in loops: -O1 compiles them a quarter faster.
# Numbers do not change (no optimisation level may, see docs/numerics.md).
add_library(strata_quick_compile INTERFACE)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(strata_quick_compile INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
endif()

# strata_room(NAME DEPENDS other rooms and libraries...): library strata_NAME from every .cpp of the current folder.
# Files whose names end in _avx2.cpp and _avx512.cpp are compiled for those instruction sets; code outside of them runs on
# any x86-64 machine and picks at run time.
function(strata_room name)
  cmake_parse_arguments(ROOM "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  list(FILTER sources EXCLUDE REGEX "_main\\.cpp$")
  set(compiled ${sources})
  list(FILTER compiled INCLUDE REGEX "\\.cpp$")
  if(compiled)
    add_library(strata_${name} STATIC ${sources})
    target_link_libraries(strata_${name} PUBLIC strata_options ${ROOM_DEPENDS})
  else()
    add_library(strata_${name} INTERFACE)
    target_link_libraries(strata_${name} INTERFACE strata_options ${ROOM_DEPENDS})
  endif()
  foreach(file IN LISTS compiled)
    if(file MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-mbmi2")
    elseif(file MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mbmi2;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mavx512vbmi;-mavx512vbmi2;-mavx512bitalg;-mgfni;-mprefer-vector-width=512;-Wno-uninitialized;-Wno-maybe-uninitialized")  # GCC bug 105593
    endif()
  endforeach()
endfunction()
