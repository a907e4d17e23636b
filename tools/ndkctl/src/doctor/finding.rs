//! The findings: each has a name, a severity, and where it is made a subject, a cause and a next step.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As it may be wanted; good to know.
    Note,
    /// Works, but not all, or not as is expected.
    Warning,
    /// Does not work.
    Error,
}

macro_rules! findings {
    ($($(#[$about:meta])* $Name:ident = $severity:ident, $checked:literal;)*) => {
        /// Something that is wrong, or may be.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Finding {
            $($(#[$about])* $Name,)*
        }

        impl Finding {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$Name,)*];

            #[must_use]
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$Name => Severity::$severity,)*
                }
            }

            /// What is checked, as a noun.
            #[must_use]
            pub const fn checked(self) -> &'static str {
                match self {
                    $(Self::$Name => $checked,)*
                }
            }
        }
    };
}

findings! {
    /// There is no softndk.sys.
    DriverAbsent = Error, "softndk.sys is installed";
    /// It is not loaded.
    DriverStopped = Error, "softndk.sys is loaded";
    /// Its device cannot be opened, for none of the other reasons.
    DeviceUnreachable = Error, "the control device answers";
    /// This user may not open it.
    NotElevated = Error, "this user may open the control device";
    /// Driver and tool do not understand each other.
    AbiDiffers = Error, "driver and tool have one ABI";
    /// Tool, drivers and DLL are not of one build.
    BuildsDiffer = Warning, "tool, drivers and DLL are of one build";
    /// A driver with debug assertions.
    DebugBuild = Note, "the drivers are optimised";
    /// Windows does not load test-signed drivers.
    TestSigningOff = Error, "test signing is in force";
    /// The firmware forbids test signing.
    SecureBootOn = Error, "Secure Boot is off";
    /// The signature of softndk.sys is not trusted.
    CertificateMissing = Error, "the driver's certificate is trusted";
    /// There is no device.
    NoAdapters = Error, "there is an adapter";
    /// A device has a problem code.
    AdapterProblem = Error, "the devices have started";
    /// An adapter has no address, so nothing finds it.
    NoAddress = Error, "the adapters have addresses";
    /// No other adapter is on its wire.
    AloneOnWire = Note, "each wire has two ends";
    /// The link is down or paused.
    LinkDown = Warning, "the links are up";
    /// NDK is off on one adapter.
    NdkOff = Error, "NDK is on for each adapter";
    /// NDK is off for the whole computer.
    NdkOffGlobally = Error, "NDK is on for the computer";
    /// Windows' checkers want counts that are not zero.
    CountsZero = Error, "the counts of queue pairs and completion queues";
    /// A speed that no memory copy reaches, by which test tools judge.
    LinkSpeedUnbelievable = Warning, "the link speeds are believable";
    /// SMB does not take the adapter for RDMA.
    NotForSmb = Warning, "SMB takes the adapters for RDMA";
    /// RoCE makes checkers ask for flow control.
    FlowControlAskedFor = Warning, "no checker asks for flow control";
    /// No program finds softnd.dll.
    ProviderAbsent = Warning, "the Winsock catalogue has softnd.dll";
    /// The file of an entry is not there.
    ProviderDllMissing = Error, "the DLL of the entries is there";
    /// This user may not open `\\.\SoftNd`.
    ProviderRefuses = Warning, "this user may use user-mode NetworkDirect";
    /// Only administrators may.
    ProviderForAdministrators = Note, "other users may use user-mode NetworkDirect";
    /// There is no ndktest.sys.
    ConsumerAbsent = Warning, "ndktest.sys is installed";
    /// It is not loaded.
    ConsumerStopped = Warning, "ndktest.sys is loaded";
    /// Its device cannot be opened.
    ConsumerUnreachable = Warning, "the device of ndktest.sys answers";
    /// Winsock Kernel gives the consumer an adapter less.
    WskFindsNoAdapter = Error, "Winsock Kernel opens the adapters";
    /// A keyword that makes the driver behave in an uncommon way.
    KeywordOdd = Warning, "no odd keyword is switched on";
    /// A value that the driver replaces by the default.
    KeywordInvalid = Warning, "the keywords are in their ranges";
    /// An uplink has no socket.
    UplinkNotOpen = Error, "the uplinks have their UDP port";
    /// An adapter with peers uses no streams.
    UplinkWithoutStreams = Warning, "RDMA goes where frames go";
    /// A peer's address is behind the adapters.
    UplinkIntoItself = Error, "the way to the peers does not lead into the wire";
    /// Another machine's adapter has the same station address.
    StationAddressTwice = Error, "no peer has an adapter's station address";
    /// Nothing comes from a peer.
    PeerSilent = Warning, "the peers answer";
    /// Datagrams come that are for no uplink.
    UnknownSenders = Note, "datagrams come from peers only";
    /// Driver Verifier fails allocations of our drivers.
    FaultsInjected = Warning, "Driver Verifier injects no faults";
}

/// A finding that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    pub finding: Finding,
    pub severity: Severity,
    /// What it is about: a driver, an adapter, the computer.
    pub subject: String,
    pub cause: String,
    pub next_step: String,
}

impl Finding {
    /// This finding, of a subject.
    pub fn of(self, subject: impl Into<String>, cause: impl Into<String>, next_step: impl Into<String>) -> Found {
        let (subject, cause, next_step) = (subject.into(), cause.into(), next_step.into());
        Found { finding: self, severity: self.severity(), subject, cause, next_step }
    }
}
