//! A handle of each device: requests go to the driver whose they are.

use kernel_host::io::{self, IoResult, Opener, PendingIrp};
use kernel_host::memory::user_buffer::UserBuffer;
use kernel_host::status::NtStatus;
use softndk_ioctl::{
    AdapterListRequest, EventListRequest, MeasureRequest, MemcpyRequest, ObjectListRequest, ObjectSummaryReply,
    ObjectSummaryRequest, PairCloseRequest, PairCreateRequest, PairModerationRequest, RefusalListRequest, Request,
    ScriptRequest, TEST_WIN32_DEVICE_NAME, TransferRequest, UplinkListRequest, VersionRequest, WIN32_DEVICE_NAME,
};
use zerocopy::{FromBytes, IntoBytes};

/// Requests that softndk.sys answers.
const OF_THE_PROVIDER: [u32; 7] = [
    VersionRequest::CODE,
    AdapterListRequest::CODE,
    ObjectSummaryRequest::CODE,
    ObjectListRequest::CODE,
    RefusalListRequest::CODE,
    EventListRequest::CODE,
    UplinkListRequest::CODE,
];
/// Requests that ndktest.sys answers, and only it.
const OF_THE_CONSUMER: [u32; 7] = [
    PairCreateRequest::CODE,
    PairCloseRequest::CODE,
    PairModerationRequest::CODE,
    TransferRequest::CODE,
    MemcpyRequest::CODE,
    MeasureRequest::CODE,
    ScriptRequest::CODE,
];

/// Open handles of `\\.\SoftNdk` and of `\\.\NdkTest`.
pub struct File {
    provider: io::File,
    consumer: io::File,
}

impl File {
    /// Opens both, with something behind their names; both drivers must answer the same.
    pub fn open(behind: &str, access: u32, opener: Opener) -> Result<Self, NtStatus> {
        let open = |name: &str| io::file::open(&format!("{name}{behind}"), access, opener);
        match (open(WIN32_DEVICE_NAME), open(TEST_WIN32_DEVICE_NAME)) {
            (Ok(provider), Ok(consumer)) => Ok(Self { provider, consumer }),
            (Err(provider), Err(consumer)) => {
                assert_eq!(provider, consumer, "the drivers refuse with different statuses");
                Err(provider)
            }
            (provider, consumer) => {
                let short = provider.as_ref().err().or(consumer.as_ref().err()).copied();
                for file in [provider, consumer].into_iter().flatten() {
                    file.close();
                }
                // Under faults one of them may run short.
                Err(short.expect("one of them failed"))
            }
        }
    }

    /// The handle of ndktest.sys.
    pub fn consumer(&self) -> &io::File {
        &self.consumer
    }

    /// A code of neither driver goes to both, and both must answer the same.
    pub fn ioctl(&self, code: u32, input: &[u8], output: &mut [u8]) -> IoResult {
        if code == ObjectSummaryRequest::CODE {
            return self.summary(input, output);
        }
        if OF_THE_CONSUMER.contains(&code) {
            return self.consumer.ioctl(code, input, output);
        }
        let answer = self.provider.ioctl(code, input, output);
        if !OF_THE_PROVIDER.contains(&code) {
            assert_eq!(self.consumer.ioctl(code, input, output).status, answer.status, "0x{code:08X}");
        }
        answer
    }

    /// Objects are the provider's to count, pairs the consumer's.
    fn summary(&self, input: &[u8], output: &mut [u8]) -> IoResult {
        let mut own = vec![0; output.len()];
        let pairs = self.consumer.ioctl(ObjectSummaryRequest::CODE, input, &mut own);
        let answer = self.provider.ioctl(ObjectSummaryRequest::CODE, input, output);
        let replies = (ObjectSummaryReply::read_from_prefix(output), ObjectSummaryReply::read_from_prefix(&own));
        if let (0, 0, (Ok((mut all, _)), Ok((own, _)))) = (answer.status, pairs.status, replies) {
            assert_eq!(all.pairs, 0, "softndk.sys has no pairs");
            all.pairs = own.pairs;
            all.pool_blocks += own.pool_blocks;
            all.pool_bytes += own.pool_bytes;
            output[..size_of::<ObjectSummaryReply>()].copy_from_slice(all.as_bytes());
        }
        answer
    }

    pub fn start_ioctl(&self, code: u32, input: &[u8], output_length: usize) -> Result<PendingIrp, NtStatus> {
        self.of(code).start_ioctl(code, input, output_length)
    }

    /// As [`File::ioctl`].
    pub fn ioctl_direct(&self, code: u32, input: &[u8], buffer: &mut UserBuffer) -> IoResult {
        let answer = self.consumer.ioctl_direct(code, input, buffer);
        if !OF_THE_CONSUMER.contains(&code) {
            assert_eq!(self.provider.ioctl_direct(code, input, buffer).status, answer.status, "0x{code:08X}");
        }
        answer
    }

    pub fn start_ioctl_direct(&self, code: u32, input: &[u8], buffer: &UserBuffer) -> Result<PendingIrp, NtStatus> {
        self.consumer.start_ioctl_direct(code, input, buffer)
    }

    /// Cancels what pends.
    pub fn cancel_all(&self) -> usize {
        self.provider.cancel_all() + self.consumer.cancel_all()
    }

    /// Requests that pend.
    pub fn pending(&self) -> usize {
        self.provider.pending() + self.consumer.pending()
    }

    pub fn close(self) {
        self.consumer.close();
        self.provider.close();
    }

    fn of(&self, code: u32) -> &io::File {
        if OF_THE_PROVIDER.contains(&code) { &self.provider } else { &self.consumer }
    }
}
