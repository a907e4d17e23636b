//! Tests of user-mode NetworkDirect: the codes, structures and rings of `\\.\SoftNd` (docs/networkdirect.md), spoken as programs' providers
//! speak them, to the real driver image in the kernel host. `tests/driver` has the cases.
