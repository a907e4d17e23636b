//! The pool tags of softndk.sys.

softndk_kernel::pool_tags! {
    DRIVER = b"SnDr",
    ADAPTER = b"SnAd",
    /// Of the engine's: what the global allocator does not leave to `wdk-alloc`.
    ENGINE = b"SnEn",
    /// The engine with what runs it.
    NDK_ENGINE = b"SnNe",
    ADDRESS_TABLE = b"SnIp",
    EVENT = b"SnEv",
    RUNDOWN = b"SnRu",
    DPC = b"SnDp",
    FRAME = b"SnFr",
    NDK_ADAPTER = b"SnNa",
    COMPLETION_QUEUE = b"SnCq",
    PROTECTION_DOMAIN = b"SnPd",
    MEMORY_REGION = b"SnMr",
    MEMORY_WINDOW = b"SnMw",
    QUEUE_PAIR = b"SnQp",
    SHARED_RECEIVE_QUEUE = b"SnSr",
    LISTENER = b"SnLi",
    CONNECTOR = b"SnCo",
    SHARED_ENDPOINT = b"SnSe",
    MAPPING = b"SnMa",
    DEFERRED = b"SnLa",
    /// Files and processes of user-mode NetworkDirect.
    ND_FILE = b"SnNf",
    /// Tables of handles.
    ND_HANDLES = b"SnNh",
    /// Requests that pend.
    ND_REQUEST = b"SnNi",
    /// Queues whose rings the driver looks at by itself.
    ND_POLLER = b"SnNp",
    /// Connections that wait for a listener's process.
    ND_ARRIVAL = b"SnNb",
    /// Sockets of Winsock Kernel, and what reaches it.
    SOCKET = b"SnSo",
    WSK_CLIENT = b"SnWk",
    /// Ways to other machines: datagrams, and what is known of their stations.
    UPLINK = b"SnUp",
    SERVICE = b"SnTu",
    /// Queues of work with their DPCs and threads.
    WORK = b"SnWo",
}
