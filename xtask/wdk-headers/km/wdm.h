#pragma once
/*
 * wdm.h: what every kernel driver sees.
 *
 * Written for softndk from the documented interface of Windows kernel drivers: the types and functions that softndk and
 * the wdk crates use, under the names that the driver kit gives them, so that the generated Rust names are the same.
 * Not a replacement for the kit's header.
 */

#include "ntdef.h"
#include "wdm_sync.h"
#include "wdm_io.h"
#include "wdm_memory.h"
#include "wdm_system.h"
