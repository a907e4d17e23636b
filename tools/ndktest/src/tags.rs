//! The pool tags of ndktest.sys.

softndk_kernel::pool_tags! {
    DRIVER = b"NtDr",
    LIBRARY = b"NtLb",
    EVENT = b"NtEv",
    RUNDOWN = b"NtRu",
    CONTROL_FILE = b"NtCf",
    INTERFACE = b"NtIf",
    WSK_CLIENT = b"NtWs",
    SESSION = b"NtSs",
}
