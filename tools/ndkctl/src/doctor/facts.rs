//! What a doctor has to know.

use crate::adapter::AdapterDevice;
use crate::failure::Failure;
use crate::identity::Part;
use crate::info::Adapter;
use crate::wire::UplinkReport;
use serde::{Deserialize, Serialize};
use softndk_ioctl::Status;
use std::collections::BTreeMap;

/// The whole computer.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// The tool and what else names its build.
    pub parts: Vec<Part>,
    /// softndk.sys.
    pub provider: DriverFacts,
    /// ndktest.sys.
    pub consumer: DriverFacts,
    /// The adapters that softndk.sys lists.
    pub adapters: Vec<AdapterFacts>,
    /// Their ways to other machines.
    pub uplinks: Vec<UplinkReport>,
    /// Indexes of the interfaces that ndktest.sys opens through Winsock Kernel; null where it does not answer.
    pub consumer_interfaces: Option<Vec<u32>>,
    /// `\\.\SoftNd`, opened by this user.
    pub network_direct: DeviceState,
    /// The entries of softnd.dll by which programs find it; null where it cannot be known.
    pub entries: Option<Vec<ProviderEntry>>,
    pub system: SystemFacts,
}

/// A driver.
#[derive(Clone, Debug, Serialize)]
pub struct DriverFacts {
    pub service: Service,
    pub device: DeviceState,
    /// Built with debug assertions; null where it does not answer.
    pub debug_build: Option<bool>,
}

/// A driver's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Service {
    Running,
    Stopped,
    Absent,
    Unknown,
}

/// What an open of a control device came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum DeviceState {
    Open,
    Absent,
    /// This user may not open it.
    Denied,
    /// Its driver has another version of the ABI.
    OtherAbi,
    Failed {
        cause: String,
    },
}

impl DeviceState {
    /// By the failure of an open or of the first request.
    #[must_use]
    pub fn of(failure: &Failure) -> Self {
        match failure.status.map(|status| Status(status.cast_signed())) {
            Some(Status::OBJECT_NAME_NOT_FOUND) => Self::Absent,
            Some(Status::ACCESS_DENIED) => Self::Denied,
            Some(Status::REVISION_MISMATCH) => Self::OtherAbi,
            _ => Self::Failed { cause: failure.cause.clone() },
        }
    }
}

/// One adapter.
#[derive(Clone, Debug, Serialize)]
pub struct AdapterFacts {
    #[serde(flatten)]
    pub adapter: Adapter,
    pub interface: InterfaceFacts,
}

/// What the system knows of an adapter's interface.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InterfaceFacts {
    pub interface_index: u32,
    /// MaxQueuePairCount and MaxCompletionQueueCount of Get-NetAdapterRdma.
    pub max_queue_pairs: Option<u64>,
    pub max_completion_queues: Option<u64>,
    /// RdmaCapable of Get-SmbClientNetworkInterface; false where the interface is not listed there.
    pub smb_rdma_capable: Option<bool>,
    /// The values of the driver key.
    pub keywords: Option<BTreeMap<String, String>>,
}

impl AdapterFacts {
    /// The name for people.
    #[must_use]
    pub fn name(&self) -> String {
        let number = format!("adapter {}", self.adapter.index);
        self.adapter.alias.as_ref().map_or(number.clone(), |alias| format!("{number} (\"{alias}\")"))
    }

    /// As an argument of a cmdlet.
    #[must_use]
    pub fn alias(&self) -> &str {
        self.adapter.alias.as_deref().unwrap_or("NAME")
    }

    /// A value of the driver key; names are compared without regard to case, as Windows does.
    #[must_use]
    pub fn keyword(&self, name: &str) -> Option<&str> {
        let keywords = self.interface.keywords.as_ref()?.iter();
        keywords.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A provider of NetworkDirect that programs find.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProviderEntry {
    pub path: String,
    pub dll_is_there: bool,
}

/// What only Windows has.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SystemFacts {
    /// This program has the rights of an administrator.
    pub elevated: Option<bool>,
    /// Test-signed drivers are loaded now, whatever is set for the next start.
    pub test_signing: Option<bool>,
    pub secure_boot: Option<bool>,
    /// The signature of softndk.sys is one that this computer trusts.
    pub signature_trusted: Option<bool>,
    /// NetworkDirect of Set-NetOffloadGlobalSetting.
    pub network_direct: Option<bool>,
    /// Driver Verifier's flags, where it verifies one of our drivers; 0 otherwise.
    pub verifier_flags: Option<u32>,
    /// The devices with our hardware id.
    pub devices: Option<Vec<AdapterDevice>>,
}
