//! The kernel host's NDIS and I/O manager with a miniport that completes asynchronously wherever it may. Each trial is a process.

// A test is a border like the crate it tests: it hands raw addresses to an image.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "one call into an image and its arguments belong together")]

use std::path::Path;
use std::time::Duration;

use kernel_host::callout::{Context, ContextKind};
use kernel_host::inf::{AdapterConfig, Inx};
use kernel_host::io::{GENERIC_READ, GENERIC_WRITE};
use kernel_host::ndis::data_path::Frame;
use kernel_host::ndis::miniport::MiniportState;
use kernel_host::ndis::status;
use kernel_host::{Adapter, Driver, HaltAction, Kernel, KernelConfig, call_image, thread};

const GEN_STATISTICS: u32 = 0x0002_0106;
/// The identifier that the image only completes when it is cancelled.
const WAITS: u32 = 0xFF01_0001;

struct Machine {
    kernel: Kernel,
    driver: Driver,
    adapter: Adapter,
}

impl Machine {
    fn boot() -> Self {
        let kernel = Kernel::boot(KernelConfig::default());
        let driver = kernel.load_driver(crate::probe::image_of("slow-miniport"), "slow").expect("the image loads");
        let inx = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../inf/softndk.inx");
        let config = AdapterConfig::from_inx(&Inx::load(inx).expect("the INF is readable")).expect("it installs");
        let adapter = kernel.add_adapter(&driver, config).expect("the adapter starts");
        Self { kernel, driver, adapter }
    }

    fn wait_until_idle(&self) {
        self.kernel.rest(Duration::from_secs(1));
    }

    fn received(&self) -> Vec<Vec<u8>> {
        self.adapter.take_received().expect("a started adapter")
    }

    fn finish(self) {
        self.driver.unload();
        let report = self.kernel.shutdown();
        assert!(report.is_clean(), "{report}");
    }
}

/// Each frame differs from the others in length and contents.
fn frame(number: usize) -> Vec<u8> {
    let head = [0xFF; 12].into_iter().chain([0x88, 0xB5]);
    head.chain((0..60 + number).map(|index| (index * 7 + number) as u8)).collect()
}

trial! {
    fn everything_that_pends_is_waited_for() {
        let machine = Machine::boot();
        assert_eq!(machine.adapter.state(), MiniportState::Running, "restart was completed later");
        let answer = machine.adapter.query_oid(GEN_STATISTICS, 8).expect("a started adapter");
        assert_eq!((answer.status, answer.data), (status::SUCCESS, vec![0; 4]));
        let direct = machine.adapter.direct_query_oid(GEN_STATISTICS, 2).expect("a started adapter");
        assert_eq!((direct.status, direct.bytes_needed), (status::BUFFER_TOO_SHORT, 4));
        machine.adapter.restart().expect("pauses and restarts");
        machine.adapter.halt(HaltAction::DeviceDisabled).expect("halts");
        machine.adapter.start().expect("starts again");
        machine.finish();
    }
}

trial! {
    fn frames_come_back_whatever_their_lists_are_made_of() {
        let machine = Machine::boot();
        let sent: Vec<_> = (0..8).map(frame).collect();
        assert_eq!(machine.adapter.send_frames(&sent).expect("sends"), [status::SUCCESS; 8]);
        machine.wait_until_idle();
        assert_eq!(machine.received(), sent);
        let whole = frame(100);
        let pieces = vec![whole[..5].to_vec(), whole[5..40].to_vec(), whole[40..].to_vec()];
        let batch = machine.adapter.send(vec![Frame { pieces, ..Frame::default() }]).expect("sends");
        assert_eq!(batch.wait(), [status::SUCCESS]);
        machine.wait_until_idle();
        assert_eq!(machine.received(), [whole], "put together by NdisGetDataBuffer");
        machine.finish();
    }
}

trial! {
    fn a_pause_waits_for_frames_that_the_host_keeps() {
        let machine = Machine::boot();
        machine.adapter.keep_received(true).expect("a started adapter");
        machine.adapter.send_frames(&[frame(1), frame(2), frame(3)]).expect("sends");
        machine.wait_until_idle();
        assert_eq!(machine.received().len(), 3);
        machine.adapter.pause().expect("pauses once they are back");
        machine.adapter.restart().expect("restarts");
        machine.finish();
    }
}

trial! {
    fn sends_and_requests_are_cancelled_by_their_ids() {
        let machine = Machine::boot();
        let frames = [1_usize, 2, 1].map(|id| Frame { pieces: vec![frame(id)], cancel_id: id, ..Frame::default() });
        let batch = machine.adapter.send(frames.to_vec()).expect("sends");
        machine.adapter.cancel_send(1).expect("a started adapter");
        assert_eq!(batch.wait(), [status::SEND_ABORTED, status::SUCCESS, status::SEND_ABORTED]);
        let adapter = machine.adapter.clone();
        let waiting = thread::spawn("asks", move || adapter.query_oid(WAITS, 4).expect("a started adapter"));
        machine.wait_until_idle();
        assert_eq!(machine.adapter.cancel_oid(WAITS), Ok(1));
        assert_eq!(waiting.join().status, status::REQUEST_ABORTED);
        machine.finish();
    }
}

trial! {
    fn a_pended_packet_ends_in_its_cancel_routine() {
        const STATUS_CANCELLED: i32 = 0xC000_0120_u32 as i32;
        /// CTL_CODE(0x8000, 0x801, METHOD_BUFFERED, READ | WRITE)
        const CODE: u32 = 0x8000 << 16 | 3 << 14 | 0x801 << 2;
        let machine = Machine::boot();
        let file = machine.kernel.open_device(r"\\.\SlowMiniport", GENERIC_READ | GENERIC_WRITE).expect("opens");
        let first = file.start_ioctl(CODE, &[1, 2], 8).expect("is sent");
        let second = file.start_ioctl(CODE, &[], 0).expect("is sent");
        assert_eq!(file.pending(), 2);
        assert!(!first.is_completed() && first.wait_for(Duration::from_millis(5)).is_none());
        assert!(first.cancel());
        assert_eq!(first.wait().status, STATUS_CANCELLED);
        assert!(!first.cancel(), "it is over");
        assert_eq!(file.cancel_all(), 1);
        assert_eq!(second.wait().status, STATUS_CANCELLED);
        let read_only = machine.kernel.open_device(r"\\.\SlowMiniport", GENERIC_READ).expect("opens");
        assert!(read_only.start_ioctl(CODE, &[], 0).is_err(), "the code asks for write access as well");
        read_only.close();
        file.close();
        machine.finish();
    }
}

trial! {
    fn address_changes_are_notified_and_can_be_looked_up() {
        let machine = Machine::boot();
        let address = "10.5.0.1".parse().expect("an address");
        assert!(machine.adapter.add_address(address, 24));
        assert!(machine.adapter.remove_address(address));
        let exports = &machine.driver.image().exports;
        let (_, function) = exports.iter().find(|(name, _)| name == "address_events").expect("an export");
        let context = Context::new(ContextKind::Other, "address_events");
        // SAFETY: an exported function without arguments.
        let events = unsafe { call_image!(context, *function => u64;) };
        assert_eq!(events, 1 << 32 | 1 << 16 | 1, "one initial notification, one addition, one deletion");
        machine.finish();
    }
}
