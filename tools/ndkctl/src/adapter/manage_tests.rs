//! `add`, `remove` and `list` on a model of SetupAPI, which fails where it is asked to.

use super::{AdapterDevice, Devices, add, list, remove};
use crate::failure::{Failure, Kind};
use std::cell::{Cell, RefCell};
use std::path::Path;

/// A computer's devices with our hardware id. Calls of each kind are counted from 1.
#[derive(Default)]
struct Model {
    devices: RefCell<Vec<AdapterDevice>>,
    next: Cell<u32>,
    registered: Cell<u32>,
    installed: Cell<u32>,
    register_fails_at: u32,
    install_fails_at: u32,
    /// The call says success, and the device has no driver.
    installs_nothing_at: u32,
    remove_fails: bool,
    wants_restart: bool,
}

fn counted(count: &Cell<u32>) -> u32 {
    count.set(count.get() + 1);
    count.get()
}

fn device(number: u32, has_driver: bool) -> AdapterDevice {
    let instance = format!(r"ROOT\SOFTNDK\{number:04}");
    AdapterDevice { instance, alias: None, has_driver, started: has_driver, problem: None }
}

fn refusal(what: &str) -> Failure {
    Failure::new(Kind::Unreachable, what, format!("{what} fails"), "next")
}

impl Model {
    fn with(devices: &[AdapterDevice]) -> Self {
        Self { devices: RefCell::new(devices.to_vec()), next: Cell::new(devices.len() as u32), ..Self::default() }
    }

    fn instances(&self) -> Vec<String> {
        self.devices.borrow().iter().map(|device| device.instance.clone()).collect()
    }
}

impl Devices for Model {
    fn list(&self) -> Result<Vec<AdapterDevice>, Failure> {
        Ok(self.devices.borrow().clone())
    }

    fn register(&self) -> Result<String, Failure> {
        if counted(&self.registered) == self.register_fails_at {
            return Err(refusal("register"));
        }
        let number = self.next.replace(self.next.get() + 1);
        self.devices.borrow_mut().push(device(number, false));
        Ok(format!(r"root\softndk\{number:04}"))
    }

    fn install(&self, instance: &str, inf: Option<&Path>) -> Result<bool, Failure> {
        assert_eq!(inf, Some(Path::new(INF)));
        let number = counted(&self.installed);
        if number == self.install_fails_at {
            return Err(refusal("install"));
        }
        let mut devices = self.devices.borrow_mut();
        let device = devices.iter_mut().find(|device| device.instance.eq_ignore_ascii_case(instance));
        device.expect("a device that is registered").has_driver = number != self.installs_nothing_at;
        Ok(self.wants_restart)
    }

    fn remove(&self, instance: &str) -> Result<bool, Failure> {
        if self.remove_fails {
            return Err(refusal("remove"));
        }
        let mut devices = self.devices.borrow_mut();
        let index = devices.iter().position(|device| device.instance.eq_ignore_ascii_case(instance));
        devices.remove(index.expect("a device that is there"));
        Ok(self.wants_restart)
    }
}

const INF: &str = "softndk.inf";

fn add_all(model: &Model, count: usize) -> Result<super::DeviceAddReport, Failure> {
    add(model, count, Some(Path::new(INF)))
}

#[test]
fn count_means_in_all_and_twice_is_once() {
    let model = Model::default();
    let report = add_all(&model, 2).unwrap();
    assert_eq!((report.added.len(), report.unchanged.len(), report.restart_needed), (2, 0, false));
    let report = add_all(&model, 2).unwrap();
    assert_eq!((report.added.len(), report.unchanged.len()), (0, 2));
    let report = add_all(&model, 3).unwrap();
    assert_eq!((report.added.len(), report.unchanged.len()), (1, 2));
    let report = add_all(&model, 1).unwrap();
    assert_eq!((report.added.len(), report.unchanged.len(), model.instances().len()), (0, 3, 3), "more are left");
}

#[test]
fn a_failure_half_way_leaves_what_was_there() {
    let there = [device(0, true)];
    for broken in [
        Model { register_fails_at: 1, ..Model::with(&there) },
        Model { register_fails_at: 2, ..Model::with(&there) },
        Model { install_fails_at: 1, ..Model::with(&there) },
        Model { install_fails_at: 2, ..Model::with(&there) },
        Model { installs_nothing_at: 1, ..Model::with(&there) },
        Model { installs_nothing_at: 2, ..Model::with(&there) },
    ] {
        let failure = add_all(&broken, 3).unwrap_err();
        assert_eq!(broken.devices.borrow().as_slice(), there, "{failure}");
        assert!(!failure.cause.contains("is left"), "{failure}");
    }
}

#[test]
fn what_cannot_be_taken_back_is_named() {
    let model = Model { install_fails_at: 1, remove_fails: true, ..Model::default() };
    let failure = add_all(&model, 1).unwrap_err();
    assert!(failure.cause.contains(r"install fails; root\softndk\0000 is left"), "{failure}");
    assert!(failure.next_step.contains(r"adapter remove root\softndk\0000"), "{failure}");
}

#[test]
fn a_device_without_a_driver_is_replaced() {
    let model = Model::with(&[device(0, false), device(1, true)]);
    let report = add_all(&model, 2).unwrap();
    assert_eq!(report.removed, [r"ROOT\SOFTNDK\0000"]);
    assert_eq!((report.unchanged.len(), report.added.len()), (1, 1));
    assert!(model.devices.borrow().iter().all(|device| device.has_driver));
    assert!(report.to_string().contains("removed: it had no driver"), "{report}");
}

#[test]
fn a_restart_is_reported() {
    let model = Model { wants_restart: true, ..Model::default() };
    let report = add_all(&model, 1).unwrap();
    assert!(report.restart_needed && report.to_string().ends_with("restart Windows to finish"), "{report}");
    let report = remove(&model, None).unwrap();
    assert!(report.restart_needed && report.to_string().ends_with("restart Windows to finish"), "{report}");
}

#[test]
fn one_is_removed_by_its_instance_id_in_any_case() {
    let model = Model::with(&[device(0, true), device(1, true)]);
    assert_eq!(remove(&model, Some(r"root\softndk\0001")).unwrap().removed, [r"ROOT\SOFTNDK\0001"]);
    assert_eq!(model.instances(), [r"ROOT\SOFTNDK\0000"]);
    let failure = remove(&model, Some(r"ROOT\OTHER\0000")).unwrap_err();
    assert_eq!((failure.kind, model.instances().len()), (Kind::Usage, 1), "{failure}");
}

#[test]
fn all_are_removed_and_none_is_no_failure() {
    let model = Model::with(&[device(0, true), device(1, false)]);
    assert_eq!(remove(&model, None).unwrap().removed.len(), 2);
    assert!(remove(&model, None).unwrap().to_string().contains("there were no adapters"));
    let stubborn = Model { remove_fails: true, ..Model::with(&[device(0, true)]) };
    assert_eq!(remove(&stubborn, None).unwrap_err().what, "remove");
}

#[test]
fn the_list_says_in_which_state_each_is() {
    let problem = AdapterDevice { problem: Some(52), started: false, ..device(2, true) };
    let named = AdapterDevice { alias: Some("softndk 1".to_owned()), ..device(0, true) };
    let stopped = AdapterDevice { started: false, ..device(3, true) };
    let report = list(&Model::with(&[named, device(1, false), problem, stopped])).unwrap();
    let text = report.to_string();
    for wanted in ["softndk 1", "started", "without a driver", "problem code 52", "not started", r"ROOT\SOFTNDK\0003"] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
    assert!(list(&Model::default()).unwrap().to_string().contains("adapter add"));
    assert_eq!(serde_json::to_value(&report).unwrap()["devices"][2]["problem"], 52);
}
